// UnitPass: forward and backward of one unit through the whole decoder, within an activation budget.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "model/weights.h"
#include "train/gradient_sum.h"
#include "train/head.h"
#include "train/loss.h"
#include "train/tape.h"
#include "train/unit.h"
#include "train/workspace.h"

namespace rondo::train {

/// Sums over the trained tokens of one unit, in target order; adding units in issue order keeps the totals
/// deterministic.
struct UnitReport {
  std::int64_t tokens = 0;
  double weighted_loss =
      0;  // sum of weight * (policy_loss + coef * kl - coef * entropy); divide by the normaliser
  double weighted_policy_loss = 0;
  double weighted_kl = 0;
  double weighted_entropy = 0;
  double ppo_kl = 0;  // sum of old_logprob - logprob
  std::int64_t clipped_low = 0;
  std::int64_t clipped_high = 0;
  float max_ratio_error = 0;  // max |ratio - 1|
  float max_logprob_error =
      0;  // max |logprob - old_logprob|: 0 exactly while the policy is the one that sampled

  void add(const UnitReport& other);
};

/// Runs units through a model that it does not own. Layer activations are kept up to `activation_bytes` and
/// recomputed beyond, which changes no bit. One owner thread.
class UnitPass final {
 public:
  UnitPass(const model::Model& model, Workspace& workspace, std::size_t activation_bytes);

  /// Log-probability of every token of every sample, at `temperature`: the engine's bits.
  Result<std::vector<std::vector<float>>> logprobs(const TrainUnit& unit, float temperature);

  /// Adds the unit's unnormalised gradient to `sum`. kNumeric on NaN or overflow, kInvalidArgument for tokens
  /// that the model does not have; the sum is poisoned by either.
  Result<UnitReport> accumulate(const TrainUnit& unit, const LossConfig& loss, float temperature,
                                GradientSum& sum);

  void weights_changed() { head_.weights_changed(); }

 private:
  struct Forward;
  Result<UnitReport> add_gradient(const TrainUnit& unit, const LossConfig& loss, float temperature,
                                  GradientSum& sum);
  Result<Forward> forward(const UnitRows& rows, bool keep);
  Result<void> backward(Forward& forward, const UnitRows& rows, BufferPool::Handle dhidden, GradientSum& sum);
  Result<void> check_tokens(const TrainUnit& unit) const;
  BufferPool::Handle embed(const UnitRows& rows);
  TapeInputs tape_inputs(const UnitRows& rows) { return {model_, &rows, workspace_}; }

  const model::Model* model_;
  Workspace* workspace_;
  std::size_t activation_bytes_;
  Head head_;
};

/// Whether the unit's loss is identically zero, so that it can be left out: no advantage, no KL, no entropy
/// term.
bool has_no_gradient(const TrainUnit& unit, const LossConfig& loss);

}  // namespace rondo::train
