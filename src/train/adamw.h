// AdamW: fp32 masters and moments, and the update that turns a gradient sum into new weights.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "kernels/ops.h"
#include "model/weights.h"
#include "train/gradient_sum.h"

namespace rondo::train {

/// AdamW (Loshchilov & Hutter 2019) with clipping by global norm. All but clip_grad are rounded to fp32
/// first.
struct OptimizerConfig {
  double lr = 1e-6;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double clip_grad = 1.0;  // largest global norm; 0: no clipping

  template <class V>
  void visit(V& v) {
    v.field("lr", lr, "Learning rate.", {.min = 0});
    v.field("beta1", beta1, "Decay of the first moment.", {.min = 0, .below = 1});
    v.field("beta2", beta2, "Decay of the second moment.", {.min = 0, .below = 1});
    v.field("eps", eps, "Added to the root of the second moment.", {.above = 0});
    v.field("weight_decay", weight_decay, "Decoupled weight decay.", {.min = 0});
    v.field("clip_grad", clip_grad, "Largest global gradient norm; 0 does not clip.", {.min = 0});
  }
};

struct UpdateReport {
  double grad_norm = 0;  // of the normalised gradient, before clipping
};

/// Owns masters, first and second moments (fp32 [rows, cols] per parameter) and the count of updates. The
/// weights that engine and trainer compute with are the masters rounded to their storage type. One owner
/// thread; the arithmetic runs on the context's pool. An error of update() leaves everything unchanged,
/// except kNumeric from rounding, after which masters and weights must be thrown away.
class AdamW final {
 public:
  /// Which of the three arrays of a parameter.
  enum class State : std::uint8_t { kMaster, kFirstMoment, kSecondMoment };

  AdamW(const model::ParamLayout& layout, const kernels::Context& context);

  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }
  std::span<float> state(State which, model::ParamIndex i);
  std::span<const float> state(State which, model::ParamIndex i) const;
  std::size_t bytes() const;

  /// Applies one update with gradient = sum * 2^-36 / normalizer at learning rate `lr`, and stores the new
  /// weights. kNumeric for a poisoned sum, a norm that is not finite, or weights beyond their type's range.
  Result<UpdateReport> update(const OptimizerConfig& config, double lr, double normalizer,
                              const GradientSum& sum, model::Weights& weights);

  /// Rounds all masters into `weights`.
  Result<void> store_weights(model::Weights& weights) const;

 private:
  double grad_norm(const GradientSum& sum, double scale) const;

  const model::ParamLayout* layout_;
  kernels::Context context_;
  std::vector<AlignedBuffer<float>> masters_, first_, second_;  // by ParamIndex
  std::int64_t updates_ = 0;
};

/// Combines values by a fixed binary tree of neighbours: order depends on their number alone.
double tree_sum(std::vector<double> values);

/// Learning-rate schedules over global steps.
enum class LrScheduler : std::uint8_t { kConstant, kLinear, kCosine };

constexpr auto enum_names(LrScheduler) {
  using enum LrScheduler;
  return std::array{std::pair{kConstant, "constant"}, std::pair{kLinear, "linear"},
                    std::pair{kCosine, "cosine"}};
}

struct LrScheduleConfig {
  LrScheduler lr_scheduler_type = LrScheduler::kConstant;
  std::int64_t lr_warmup_steps = 0;
  double min_lr_ratio = 0;  // lr that the schedule reaches after the last step, as a share of lr

  template <class V>
  void visit(V& v) {
    v.field("lr_scheduler_type", lr_scheduler_type, "Course of the learning rate after warm-up.");
    v.field("lr_warmup_steps", lr_warmup_steps, "Steps of linear warm-up.", {.min = 0});
    v.field("min_lr_ratio", min_lr_ratio, "Learning rate at the end, as a share of lr.",
            {.min = 0, .max = 1});
  }
};

/// The learning rate of global step `step` (1-based) of `total_steps`: linear warm-up from lr / warmup_steps,
/// then the schedule.
double scheduled_lr(const LrScheduleConfig& config, double lr, std::int64_t step, std::int64_t total_steps);

}  // namespace rondo::train
