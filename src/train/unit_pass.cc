#include "train/unit_pass.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/check.h"
#include "model/decoder.h"

namespace rondo::train {

// What the forward pass leaves for the backward pass.
struct UnitPass::Forward {
  struct Layer {
    BufferPool::Handle input;  // [rows, hidden]
    std::optional<Tape> tape;  // kept while the budget lasts
    Tape::Value out = 0;
  };
  std::vector<Layer> layers;
  BufferPool::Handle last;  // input of the final norm
  std::optional<Tape> final_tape;
  Tape::Value hidden = 0;
};

void UnitReport::add(const UnitReport& other) {
  tokens += other.tokens;
  weighted_loss += other.weighted_loss;
  weighted_policy_loss += other.weighted_policy_loss;
  weighted_kl += other.weighted_kl;
  weighted_entropy += other.weighted_entropy;
  ppo_kl += other.ppo_kl;
  clipped_low += other.clipped_low;
  clipped_high += other.clipped_high;
  max_ratio_error = std::max(max_ratio_error, other.max_ratio_error);
  max_logprob_error = std::max(max_logprob_error, other.max_logprob_error);
}

bool has_no_gradient(const TrainUnit& unit, const LossConfig& loss) {
  if (loss.kl_loss_coef > 0 || loss.entropy_coeff != 0) return false;
  return std::all_of(unit.samples.begin(), unit.samples.end(), [](const TrainSample& s) {
    return s.advantage == 0 || s.weight == 0 || s.tokens.empty();
  });
}

UnitPass::UnitPass(const model::Model& model, Workspace& workspace, std::size_t activation_bytes)
    : model_(&model), workspace_(&workspace), activation_bytes_(activation_bytes), head_(model, workspace) {}

Result<void> UnitPass::check_tokens(const TrainUnit& unit) const {
  const model::ModelSpec& spec = model_->spec();
  const auto in_vocab = [&](Token t) { return t >= 0 && t < spec.vocab; };
  bool valid = !unit.prompt.empty() && std::all_of(unit.prompt.begin(), unit.prompt.end(), in_vocab);
  std::size_t longest = 0;
  for (const TrainSample& s : unit.samples) {
    valid = valid && std::all_of(s.tokens.begin(), s.tokens.end(), in_vocab);
    longest = std::max(longest, s.tokens.size());
  }
  if (!valid)
    return fail(Code::kInvalidArgument,
                "a prompt or response to train on is empty or holds a token id outside the vocabulary of {}",
                spec.vocab);
  if (unit.prompt.size() + longest > static_cast<std::size_t>(spec.max_positions))
    return fail(Code::kInvalidArgument, "a sequence of {} tokens exceeds the model's {} positions",
                unit.prompt.size() + longest, spec.max_positions);
  return {};
}

BufferPool::Handle UnitPass::embed(const UnitRows& rows) {
  const std::int64_t hidden = model_->spec().hidden;
  BufferPool::Handle x = workspace_->pool.acquire(rows.rows() * hidden);
  for (std::int32_t r = 0; r < rows.rows(); ++r)
    model_->weights().load(model_->layout().embedding(), rows.tokens()[static_cast<std::size_t>(r)], 1,
                           x.data() + r * hidden);
  return x;
}

Result<UnitPass::Forward> UnitPass::forward(const UnitRows& rows, bool keep) {
  const model::ModelSpec& spec = model_->spec();
  Forward result;
  BufferPool::Handle x = embed(rows);
  std::size_t kept = 0;
  for (std::int32_t l = 0; l < spec.layers; ++l) {
    const std::size_t before = workspace_->pool.bytes_in_use();
    Tape tape(tape_inputs(rows), Tape::Mode::kForward);
    const Tape::Value out =
        model::decoder_layer(tape, model_->layout(), l, tape.input(x.data(), spec.hidden));
    BufferPool::Handle next = tape.take(out);
    if (keep) {
      Forward::Layer& layer = result.layers.emplace_back();
      layer.input = std::move(x);
      layer.out = out;
      const std::size_t bytes = workspace_->pool.bytes_in_use() - before;
      if (kept + bytes <= activation_bytes_) {
        kept += bytes;
        layer.tape = std::move(tape);
      }
    }
    x = std::move(next);
  }
  result.last = std::move(x);
  result.final_tape.emplace(tape_inputs(rows), Tape::Mode::kForward);
  result.hidden = result.final_tape->rms_norm(result.final_tape->input(result.last.data(), spec.hidden),
                                              model_->layout().final_norm());
  return result;
}

Result<std::vector<std::vector<float>>> UnitPass::logprobs(const TrainUnit& unit, float temperature) {
  RONDO_TRY(check_tokens(unit));
  const UnitRows rows(unit);
  RONDO_ASSIGN(Forward pass, forward(rows, false));
  std::vector<TargetScore> scores(rows.targets().size());
  RONDO_TRY(head_.score(rows, pass.final_tape->data(pass.hidden), temperature, scores));
  std::vector<std::vector<float>> out;
  for (const TrainSample& sample : unit.samples) out.emplace_back(sample.tokens.size());
  for (std::size_t t = 0; t < scores.size(); ++t) {
    const Target& target = rows.targets()[t];
    out[static_cast<std::size_t>(target.sample)][static_cast<std::size_t>(target.index)] = scores[t].logprob;
  }
  return out;
}

namespace {

void report_token(UnitReport& report, const LossConfig& config, const TrainSample& sample,
                  const TokenLoss& loss, const TargetScore& score, float old_logprob) {
  const double weight = sample.weight;
  ++report.tokens;
  report.weighted_policy_loss += weight * loss.policy_loss;
  report.weighted_kl += weight * loss.kl;
  report.weighted_entropy += weight * score.entropy;
  report.weighted_loss +=
      weight * (loss.policy_loss + config.kl_loss_coef * loss.kl - config.entropy_coeff * score.entropy);
  report.ppo_kl += double{old_logprob} - score.logprob;
  if (loss.clipped) ++(loss.ratio < 1 ? report.clipped_low : report.clipped_high);
  report.max_ratio_error = std::max(report.max_ratio_error, std::fabs(loss.ratio - 1.0f));
  report.max_logprob_error = std::max(report.max_logprob_error, std::fabs(score.logprob - old_logprob));
}

}  // namespace

Result<UnitReport> UnitPass::accumulate(const TrainUnit& unit, const LossConfig& config, float temperature,
                                        GradientSum& sum) {
  Result<UnitReport> report = add_gradient(unit, config, temperature, sum);
  if (!report) sum.poison();
  return report;
}

Result<UnitReport> UnitPass::add_gradient(const TrainUnit& unit, const LossConfig& config, float temperature,
                                          GradientSum& sum) {
  RONDO_TRY(check_tokens(unit));
  for (const TrainSample& sample : unit.samples) {
    RONDO_CHECK_EQ(sample.old_logprobs.size(), sample.tokens.size());
    if (config.kl_loss_coef > 0) RONDO_CHECK_EQ(sample.ref_logprobs.size(), sample.tokens.size());
  }
  const UnitRows rows(unit);
  RONDO_ASSIGN(Forward pass, forward(rows, true));
  UnitReport report;
  const Head::Loss loss = [&](std::size_t t, const TargetScore& score) -> TargetGrad {
    const Target& target = rows.targets()[t];
    const TrainSample& sample = unit.samples[static_cast<std::size_t>(target.sample)];
    const auto i = static_cast<std::size_t>(target.index);
    const float old_logprob = sample.old_logprobs[i];
    const float ref_logprob = config.kl_loss_coef > 0 ? sample.ref_logprobs[i] : 0.0f;
    const TokenLoss token = token_loss(config, score.logprob, old_logprob, ref_logprob, sample.advantage);
    report_token(report, config, sample, token, score, old_logprob);
    return {sample.weight * token.dlogprob, sample.weight * token.dentropy};
  };
  std::vector<TargetScore> scores(rows.targets().size());
  BufferPool::Handle dhidden = workspace_->pool.acquire(std::int64_t{rows.rows()} * model_->spec().hidden);
  RONDO_TRY(head_.score_and_grad(rows, pass.final_tape->data(pass.hidden), temperature, scores, loss,
                                 dhidden.data(), sum));
  RONDO_TRY(backward(pass, rows, std::move(dhidden), sum));
  return report;
}

Result<void> UnitPass::backward(Forward& pass, const UnitRows& rows, BufferPool::Handle dhidden,
                                GradientSum& sum) {
  const std::int64_t hidden = model_->spec().hidden;
  RONDO_ASSIGN(BufferPool::Handle dx, pass.final_tape->backward(pass.hidden, std::move(dhidden), sum));
  pass.last.release();
  for (std::int32_t l = model_->spec().layers - 1; l >= 0; --l) {
    Forward::Layer& layer = pass.layers[static_cast<std::size_t>(l)];
    if (!layer.tape) {
      layer.tape.emplace(tape_inputs(rows), Tape::Mode::kReplay);
      layer.out = model::decoder_layer(*layer.tape, model_->layout(), l,
                                       layer.tape->input(layer.input.data(), hidden));
    }
    RONDO_ASSIGN(dx, layer.tape->backward(layer.out, std::move(dx), sum));
    layer.tape.reset();
    layer.input.release();
  }
  return sum.add_rows(model_->layout().embedding(), rows.tokens(), dx.data());
}

}  // namespace rondo::train
