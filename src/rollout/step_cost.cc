#include "rollout/step_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace rondo::rollout {
namespace {

// Two neighbouring points of an axis and the share of the second; outside the axis the share leaves [0, 1].
struct Cell {
  std::size_t low = 0;
  std::size_t high = 0;
  double share = 0.0;
};

Cell find_cell(const std::vector<double>& axis, double value) {
  if (axis.size() == 1) return {};
  const auto above = std::ranges::upper_bound(axis, value) - axis.begin();
  const auto high = std::clamp<std::ptrdiff_t>(above, 1, std::ssize(axis) - 1);
  const auto i = static_cast<std::size_t>(high);
  return {i - 1, i, (value - axis[i - 1]) / (axis[i] - axis[i - 1])};
}

Result<void> check_axis(std::string_view name, const std::vector<double>& axis) {
  constexpr double kLargest = 1e9;  // responses, drafts or tokens: beyond it is no measurement
  const bool in_range = std::ranges::all_of(axis, [](double x) { return x >= 0.0 && x <= kLargest; });
  const bool ascending = std::ranges::adjacent_find(axis, std::greater_equal{}) == axis.end();
  if (!axis.empty() && in_range && ascending) return {};
  return fail(Code::kInvalidArgument,
              "step cost: the axis '{}' must hold ascending numbers from 0 to 1e9; measure the costs again",
              name);
}

}  // namespace

Result<StepCost> StepCost::create(Axes axes, std::vector<double> seconds) {
  RONDO_TRY(check_axis("batches", axes.batches));
  RONDO_TRY(check_axis("gammas", axes.gammas));
  RONDO_TRY(check_axis("contexts", axes.contexts));
  const std::size_t size = axes.batches.size() * axes.gammas.size() * axes.contexts.size();
  constexpr double kShortest = 1e-9, kLongest = 1e5;  // seconds of a step
  const bool plausible =
      std::ranges::all_of(seconds, [](double x) { return x >= kShortest && x <= kLongest; });
  if (axes.gammas.front() != 0.0 || seconds.size() != size || !plausible) {
    return fail(
        Code::kInvalidArgument,
        "step cost: {} times for a grid of {}, which must start at gamma 0 and hold from {} to {} seconds; "
        "measure the costs again",
        seconds.size(), size, kShortest, kLongest);
  }
  return StepCost(std::move(axes), std::move(seconds));
}

double StepCost::seconds(double batch, double gamma, double context) const {
  const std::array cells{find_cell(axes_.batches, batch), find_cell(axes_.gammas, gamma),
                         find_cell(axes_.contexts, context)};
  double sum = 0.0;
  for (unsigned corner = 0; corner < 8; ++corner) {
    double weight = 1.0;
    std::array<std::size_t, 3> at{};
    for (unsigned axis = 0; axis < 3; ++axis) {
      const Cell& cell = cells[axis];
      const bool high = ((corner >> axis) & 1U) != 0;
      at[axis] = high ? cell.high : cell.low;
      weight *= high ? cell.share : 1.0 - cell.share;
    }
    const std::size_t index = (at[0] * axes_.gammas.size() + at[1]) * axes_.contexts.size() + at[2];
    sum += weight * seconds_[index];
  }
  // A line through noisy points may reach zero far outside; the cheapest measured step bounds it.
  return std::max(sum, *std::ranges::min_element(seconds_) * 0.5);
}

}  // namespace rondo::rollout
