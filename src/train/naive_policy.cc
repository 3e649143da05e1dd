#include "train/naive_policy.h"

#include <algorithm>
#include <cmath>

namespace rondo::train {
namespace {

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

double token_loss_value(const LossConfig& c, double logprob, double old_logprob, double ref,
                        double advantage) {
  const double ratio = std::exp(logprob - old_logprob);
  const double clipped = std::clamp(ratio, 1.0 - double{c.clip_ratio_low}, 1.0 + double{c.clip_ratio_high});
  const double policy = -std::min(ratio * advantage, clipped * advantage);
  return policy + double{c.kl_loss_coef} * (std::exp(ref - logprob) - (ref - logprob) - 1.0);
}

}  // namespace

NaivePolicy::NaivePolicy(const model::Model& model) : model_(&model) {
  const auto& params = model.layout().params();
  for (std::size_t i = 0; i < params.size(); ++i) {
    std::vector<float> values(index(params[i].count()));
    model.weights().load(static_cast<model::ParamIndex>(i), 0, params[i].rows, values.data());
    params_.emplace_back(values.begin(), values.end());
  }
}

NaivePolicy::Row NaivePolicy::project(model::ParamIndex weight, const Row& x) const {
  const Row& w = params_[index(weight)];
  Row y(w.size() / x.size(), 0.0);
  for (std::size_t r = 0; r < y.size(); ++r)
    for (std::size_t k = 0; k < x.size(); ++k) y[r] += w[r * x.size() + k] * x[k];
  return y;
}

NaivePolicy::Row NaivePolicy::normalise(model::ParamIndex weight, const Row& x) const {
  double squares = 0;
  for (double v : x) squares += v * v;
  const double scale =
      1.0 / std::sqrt(squares / static_cast<double>(x.size()) + double{model_->spec().rms_norm_eps});
  Row y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * params_[index(weight)][i];
  return y;
}

void NaivePolicy::rotate(double* head, std::size_t position) const {
  const kernels::RopeTables& rope = model_->rope();
  const auto half = static_cast<std::size_t>(rope.half);
  for (std::size_t i = 0; i < half; ++i) {
    const double c = double{rope.cosine[position * half + i]}, s = double{rope.sine[position * half + i]};
    const double a = head[i], b = head[i + half];
    head[i] = a * c - b * s;
    head[i + half] = b * c + a * s;
  }
}

// x[p] += output projection of attention over positions 0..p.
void NaivePolicy::attend(const model::LayerParams& params, std::vector<Row>& x) const {
  const model::ModelSpec& spec = model_->spec();
  const std::size_t dim = index(spec.head_dim), heads = index(spec.heads), kv_heads = index(spec.kv_heads);
  std::vector<Row> qkv;
  for (std::size_t p = 0; p < x.size(); ++p) {
    qkv.push_back(project(params.qkv, normalise(params.attention_norm, x[p])));
    for (std::size_t h = 0; h < heads + kv_heads; ++h) rotate(qkv[p].data() + h * dim, p);
  }
  for (std::size_t p = 0; p < x.size(); ++p) {
    Row out(heads * dim, 0.0);
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t key = (heads + h / (heads / kv_heads)) * dim, value = key + kv_heads * dim;
      Row weights;
      for (std::size_t j = 0; j <= p; ++j) {
        double score = 0;
        for (std::size_t d = 0; d < dim; ++d) score += qkv[p][h * dim + d] * qkv[j][key + d];
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(dim))));
      }
      double total = 0;
      for (double w : weights) total += w;
      for (std::size_t j = 0; j <= p; ++j)
        for (std::size_t d = 0; d < dim; ++d) out[h * dim + d] += weights[j] / total * qkv[j][value + d];
    }
    const Row added = project(params.output, out);
    for (std::size_t i = 0; i < added.size(); ++i) x[p][i] += added[i];
  }
}

void NaivePolicy::mlp(const model::LayerParams& params, Row& x) const {
  const Row gate_up = project(params.gate_up, normalise(params.mlp_norm, x));
  Row hidden(gate_up.size() / 2);
  for (std::size_t i = 0; i < hidden.size(); ++i)
    hidden[i] = gate_up[i] / (1.0 + std::exp(-gate_up[i])) * gate_up[i + hidden.size()];
  const Row added = project(params.down, hidden);
  for (std::size_t i = 0; i < added.size(); ++i) x[i] += added[i];
}

std::vector<NaivePolicy::Score> NaivePolicy::scores(const std::vector<Token>& prompt,
                                                    const std::vector<Token>& response,
                                                    double temperature) const {
  const model::ParamLayout& layout = model_->layout();
  const std::size_t hidden = index(model_->spec().hidden);
  std::vector<Token> tokens = prompt;
  tokens.insert(tokens.end(), response.begin(), response.end());
  std::vector<Row> x;
  for (std::size_t p = 0; p + 1 < tokens.size(); ++p) {
    const double* row = params_[index(layout.embedding())].data() + index(tokens[p]) * hidden;
    x.emplace_back(row, row + hidden);
  }
  for (std::int32_t l = 0; l < model_->spec().layers; ++l) {
    attend(layout.layer(l), x);
    for (Row& row : x) mlp(layout.layer(l), row);
  }
  std::vector<Score> out;
  for (std::size_t i = 0; i < response.size(); ++i) {
    Row logits = project(layout.head(), normalise(layout.final_norm(), x[prompt.size() + i - 1]));
    double sum = 0, entropy = 0;
    for (double& l : logits) sum += std::exp(l /= temperature);
    for (double l : logits) entropy -= std::exp(l) / sum * (l - std::log(sum));
    out.push_back({logits[index(response[i])] - std::log(sum), entropy});
  }
  return out;
}

double NaivePolicy::loss(const TrainUnit& unit, const LossConfig& config, double temperature) const {
  double total = 0;
  for (const TrainSample& sample : unit.samples) {
    const std::vector<Score> found = scores(unit.prompt, sample.tokens, temperature);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double ref = config.kl_loss_coef > 0 ? sample.ref_logprobs[i] : found[i].logprob;
      const double value =
          token_loss_value(config, found[i].logprob, sample.old_logprobs[i], ref, sample.advantage);
      total += double{sample.weight} * (value - double{config.entropy_coeff} * found[i].entropy);
    }
  }
  return total;
}

}  // namespace rondo::train
