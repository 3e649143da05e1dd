#include "train/loss.h"

#include <algorithm>
#include <cmath>

#include "kernels/op_table.h"

namespace rondo::train {
namespace {

constexpr float kMaxLogRatio = 20.0f;
constexpr float kMaxKl = 10.0f;
constexpr float kSmallLogRatio = 0.125f;

// exp of the numbers contract: every target gives these bits, so any table will do.
float contract_exp(float x) {
  float y = 0;
  kernels::available_targets().front()->exp(&x, &y, 1);
  return y;
}

struct Kl {
  float value;
  float derivative;  // with respect to logprob
};

// exp(d) - d - 1. Near 0 the three cancel to noise of either sign, so a series takes over; its rest is below
// 2^-26 of the value.
float exp_remainder(float d, float exp_d) {
  if (std::fabs(d) >= kSmallLogRatio) return (exp_d - d) - 1.0f;
  return d * d * (0.5f + d * (1.0f / 6 + d * (1.0f / 24 + d * (1.0f / 120 + d * (1.0f / 720)))));
}

Kl low_var_kl(float logprob, float ref_logprob) {
  const float d = std::clamp(ref_logprob - logprob, -kMaxLogRatio, kMaxLogRatio);
  const float e = contract_exp(d);
  const float value = exp_remainder(d, e);
  if (value > kMaxKl) return {kMaxKl, 0.0f};
  const bool saturated = d != ref_logprob - logprob;
  return {value, saturated ? 0.0f : 1.0f - e};
}

bool all_equal(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(), [&](double v) { return v == values.front(); });
}

}  // namespace

TokenLoss token_loss(const LossConfig& config, float logprob, float old_logprob, float ref_logprob,
                     float advantage) {
  TokenLoss out;
  const float log_ratio = std::clamp(logprob - old_logprob, -kMaxLogRatio, kMaxLogRatio);
  out.ratio = contract_exp(log_ratio);
  const float clipped_ratio =
      std::clamp(out.ratio, 1.0f - config.clip_ratio_low, 1.0f + config.clip_ratio_high);
  const float plain = out.ratio * advantage, clipped = clipped_ratio * advantage;
  out.clipped = clipped < plain;
  out.policy_loss = -std::min(plain, clipped);
  const bool saturated = log_ratio != logprob - old_logprob;
  out.dlogprob = out.clipped || saturated ? 0.0f : -plain;
  if (config.kl_loss_coef > 0) {
    const Kl kl = low_var_kl(logprob, ref_logprob);
    out.kl = kl.value;
    out.dlogprob += config.kl_loss_coef * kl.derivative;
  }
  out.dentropy = -config.entropy_coeff;
  return out;
}

std::vector<float> group_advantages(const AdvantageConfig& config, std::span<const double> rewards) {
  std::vector<float> out(rewards.size(), 0.0f);
  const std::size_t n = rewards.size();
  if (n == 1) {
    out[0] = static_cast<float>(rewards[0] / (config.norm_adv_by_std ? 1.0 + config.adv_epsilon : 1.0));
    return out;
  }
  if (n == 0 || all_equal(rewards)) return out;
  double mean = 0;
  for (double r : rewards) mean += r;
  mean /= static_cast<double>(n);
  double squares = 0;
  for (double r : rewards) squares += (r - mean) * (r - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(n - 1));
  const double divisor = config.norm_adv_by_std ? deviation + config.adv_epsilon : 1.0;
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>((rewards[i] - mean) / divisor);
  return out;
}

float token_weight(LossAggregation mode, std::int64_t tokens) {
  if (mode == LossAggregation::kTokenMean || tokens == 0) return 1.0f;
  return 1.0f / static_cast<float>(tokens);
}

double normalizer(LossAggregation mode, std::int64_t total_tokens, std::int64_t sequences) {
  const std::int64_t count = mode == LossAggregation::kTokenMean ? total_tokens : sequences;
  return static_cast<double>(std::max<std::int64_t>(count, 1));
}

}  // namespace rondo::train
