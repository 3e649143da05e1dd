// The policy loss of one token and its derivatives: clipped surrogate, KL to a reference, entropy bonus.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"

namespace rondo::train {

/// How token losses become one number.
enum class LossAggregation : std::uint8_t {
  kTokenMean,         // sum over tokens / tokens of the whole mini-batch
  kSeqMeanTokenMean,  // mean over sequences of the mean over their tokens (the original GRPO)
};

constexpr auto enum_names(LossAggregation) {
  using enum LossAggregation;
  return std::array{std::pair{kTokenMean, "token-mean"}, std::pair{kSeqMeanTokenMean, "seq-mean-token-mean"}};
}

/// Estimators of KL(policy || reference) from one sampled token; d = logprob - ref_logprob.
enum class KlType : std::uint8_t {
  kLowVarKl,  // k3 = exp(-d) + d - 1 (Schulman, "Approximating KL divergence"), clamped as verl does
};

constexpr auto enum_names(KlType) {
  return std::array{std::pair{KlType::kLowVarKl, "low_var_kl"}};
}

struct LossConfig {
  float clip_ratio_low = 0.2f;
  float clip_ratio_high = 0.2f;
  float kl_loss_coef = 0.0f;  // 0: no reference model is loaded
  float entropy_coeff = 0.0f;
  LossAggregation loss_agg_mode = LossAggregation::kTokenMean;
  KlType kl_loss_type = KlType::kLowVarKl;

  template <class V>
  void visit(V& v) {
    v.field("clip_ratio_low", clip_ratio_low, "The ratio is clipped below at 1 - this.",
            {.min = 0, .below = 1});
    v.field("clip_ratio_high", clip_ratio_high, "The ratio is clipped above at 1 + this.", {.min = 0});
    v.field("kl_loss_coef", kl_loss_coef,
            "Weight of the KL to the reference model in the loss; 0 loads no reference model.", {.min = 0});
    v.field("kl_loss_type", kl_loss_type, "Estimator of that KL; low_var_kl is k3.");
    v.field("entropy_coeff", entropy_coeff, "Weight of the entropy bonus.");
    v.field("loss_agg_mode", loss_agg_mode, "How token losses become one number.");
  }
};

/// What one token adds to the loss, before weight and normaliser, and the derivatives of that.
struct TokenLoss {
  float policy_loss = 0;  // -min(ratio * A, clip(ratio) * A)
  float kl = 0;           // k3, >= 0
  float ratio = 1;
  bool clipped = false;  // the clip is active: no policy gradient
  float dlogprob = 0;    // d(policy_loss + coef * kl) / d logprob
  float dentropy = 0;    // -entropy_coeff
};

/// `ref_logprob` is read only where kl_loss_coef > 0. The log-ratio is clamped to ±20.
TokenLoss token_loss(const LossConfig& config, float logprob, float old_logprob, float ref_logprob,
                     float advantage);

/// Options of the group advantage.
struct AdvantageConfig {
  bool norm_adv_by_std = true;  // false: Dr. GRPO, no division
  double adv_epsilon = 1e-6;    // added to the standard deviation

  template <class V>
  void visit(V& v) {
    v.field("norm_adv_by_std", norm_adv_by_std,
            "Divide advantages by the group's standard deviation (GRPO); false: do not (Dr. GRPO).");
    v.field("adv_epsilon", adv_epsilon, "Added to that standard deviation.", {.above = 0});
  }
};

/// GRPO: (r - mean) / (std + adv_epsilon) within the group, std with n - 1. A group of one has mean 0 and std
/// 1 (verl). A group whose rewards are all equal gets exact zeros.
std::vector<float> group_advantages(const AdvantageConfig& config, std::span<const double> rewards);

/// Weight of each token of a response of `tokens` tokens, and the mini-batch's normaliser.
float token_weight(LossAggregation mode, std::int64_t tokens);
double normalizer(LossAggregation mode, std::int64_t total_tokens, std::int64_t sequences);

}  // namespace rondo::train
