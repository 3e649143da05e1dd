// StepCost: how long a decoding step takes, by batch, draft length and context, from a measured grid.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace rondo::rollout {

/// Seconds of one step that verifies `gamma` draft tokens for each of `batch` responses of `context` tokens
/// on average, drafting included; gamma = 0 is a plain step. (T(B, gamma) + D(B, gamma) in the cost model of
/// Seer, arXiv 2511.14617, with the context that the paper leaves out.)
///
/// A grid of measured points; between them linear in each of the three, beyond them along the slope of the
/// last cell, but never below half the cheapest measured step. Immutable; any thread.
class StepCost final {
 public:
  struct Axes {
    std::vector<double> batches;  // each strictly ascending, at least one value, the first >= 0
    std::vector<double> gammas;   // the first is 0
    std::vector<double> contexts;
    bool operator==(const Axes&) const = default;
  };

  /// `seconds` by batch, then gamma, then context. kInvalidArgument if axes or values make no grid, or a
  /// value is not the time of a step, from a nanosecond to a day.
  static Result<StepCost> create(Axes axes, std::vector<double> seconds);

  double seconds(double batch, double gamma, double context) const;

  const Axes& axes() const { return axes_; }
  const std::vector<double>& values() const { return seconds_; }
  bool operator==(const StepCost&) const = default;

 private:
  StepCost(Axes axes, std::vector<double> seconds) : axes_(std::move(axes)), seconds_(std::move(seconds)) {}

  Axes axes_;
  std::vector<double> seconds_;
};

/// {"batches": […], "gammas": […], "contexts": […], "seconds": […]}; numbers read back bit for bit.
std::string step_cost_json(const StepCost& cost);
/// kDataLoss for what is no such JSON; create()'s error for what is no grid.
Result<StepCost> parse_step_cost(std::string_view json);

}  // namespace rondo::rollout
