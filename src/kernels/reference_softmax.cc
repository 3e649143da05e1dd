#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference.h"
#include "kernels/reference_math.h"

namespace rondo::kernels::reference {
namespace {

// Everything finite: the logits, the logits / T, and the distance of the least from the greatest.
bool usable(const float* logits, std::int64_t vocab, float temperature) {
  float low = logits[0], high = logits[0];
  for (std::int64_t v = 0; v < vocab; ++v) {
    if (!std::isfinite(logits[v])) return false;
    low = std::min(low, logits[v]);
    high = std::max(high, logits[v]);
  }
  return std::isfinite(high / temperature - low / temperature);
}

float combine_chains(const float* parts, std::int32_t chains) {
  if (chains == 1) return parts[0];
  return combine_chains(parts, chains / 2) + combine_chains(parts + chains / 2, chains / 2);
}

SoftmaxStats softmax_stats(const float* logits, std::int64_t vocab, float temperature, std::int32_t chains) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  if (!usable(logits, vocab, temperature)) return {kNaN, kNaN, kNaN};
  const float max = *std::max_element(logits, logits + vocab) / temperature + 0.0F;  // no negative zero
  float sums[kMaxChains] = {}, products[kMaxChains] = {};
  const std::int64_t width = (vocab + chains - 1) / chains;
  for (std::int32_t part = 0; part < chains; ++part) {
    float lanes[kReduceLanes] = {}, weighted[kReduceLanes] = {};
    for (std::int64_t v = part * width; v < std::min(vocab, (part + 1) * width); ++v) {
      const std::int64_t lane = (v - part * width) % kReduceLanes;
      const float x = logits[v] / temperature - max;
      lanes[lane] += exp(x);
      weighted[lane] = std::fma(exp(x), x, weighted[lane]);
    }
    sums[part] = combine_lanes(lanes);
    products[part] = combine_lanes(weighted);
  }
  return {max, combine_chains(sums, chains), combine_chains(products, chains)};
}

void softmax_grad(const SoftmaxGradArgs& a) {
  const float log_sum = log(a.stats.sum);
  const float entropy = log_sum - a.stats.weighted / a.stats.sum;
  for (std::int64_t v = 0; v < a.vocab; ++v) {
    const float x = a.logits[v] / a.temperature - a.stats.max;
    const float p = exp(x) / a.stats.sum;
    const float surprise = p * ((x - log_sum) + entropy);
    const float is_target = v == a.target ? 1.0F : 0.0F;
    a.dlogits[v] = std::fma(-a.dentropy, surprise, a.dlogprob * (is_target - p)) / a.temperature;
  }
}

void sampling_weights(const float* logits, std::int64_t vocab, float temperature, float max,
                      std::uint64_t* weights) {
  for (std::int64_t v = 0; v < vocab; ++v)
    weights[v] = static_cast<std::uint64_t>(exp(logits[v] / temperature - max) * 0x1p40F);
}

void exp_row(const float* x, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = exp(x[i]);
}
void log_row(const float* x, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = log(x[i]);
}
void sigmoid_row(const float* x, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = sigmoid(x[i]);
}

}  // namespace

void fill_softmax(OpTable& table) {
  table.softmax_stats = softmax_stats;
  table.softmax_grad = softmax_grad;
  table.sampling_weights = sampling_weights;
  table.exp = exp_row;
  table.log = log_row;
  table.sigmoid = sigmoid_row;
}

}  // namespace rondo::kernels::reference
