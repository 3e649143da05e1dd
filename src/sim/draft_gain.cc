#include "sim/draft_gain.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace rondo::sim {
namespace {

constexpr std::size_t kPositions = 64;

// The a for which 1 + a + … + a^drafts is `length`.
double even_acceptance(double length, int drafts) {
  double low = 0.0;
  double high = 1.0;
  for (int i = 0; i < 60; ++i) {
    const double a = 0.5 * (low + high);
    double sum = 1.0;
    double power = 1.0;
    for (int k = 0; k < drafts; ++k) sum += power *= a;
    (sum < length ? low : high) = a;
  }
  return 0.5 * (low + high);
}

double interpolate(const std::vector<double>& siblings, const std::vector<double>& lengths, double n) {
  if (n >= siblings.back()) return lengths.back();
  std::size_t i = 0;
  while (siblings[i + 1] <= n) ++i;
  const double from = std::log1p(siblings[i]);
  const double share = (std::log1p(n) - from) / (std::log1p(siblings[i + 1]) - from);
  return lengths[i] + share * (lengths[i + 1] - lengths[i]);
}

}  // namespace

std::size_t lane_of(bool is_probe, std::int32_t finished_siblings) {
  std::size_t step = 0;
  while (step + 1 < kNumSiblingSteps && kSiblingSteps[step + 1] <= finished_siblings) ++step;
  return step + (is_probe ? kNumSiblingSteps : 0);
}

Result<void> DraftGain::Config::validate() const {
  const bool ascending = std::ranges::adjacent_find(siblings, std::greater_equal{}) == siblings.end();
  if (siblings.empty() || siblings.front() != 0.0 || !ascending) {
    return fail(Code::kInvalidArgument, "siblings must ascend from 0");
  }
  for (const auto* lengths : {&accept_length, &branching_accept_length}) {
    if (lengths->size() == siblings.size()) continue;
    return fail(Code::kInvalidArgument,
                "accept_length and branching_accept_length need as many numbers as siblings: {}",
                siblings.size());
  }
  for (const auto* lengths : {&accept_length, &branching_accept_length}) {
    const double longest = 1.0 + scale * (std::ranges::max(*lengths) - 1.0);
    if (longest < 1.0 + table_drafts) continue;
    return fail(Code::kInvalidArgument, "an accept_length of {} is more than {} drafts can give; at most {}",
                longest, table_drafts, table_drafts + 1);
  }
  return {};
}

DraftGain::DraftGain(const Config& config) {
  const auto fill = [&](Rows& rows, const std::vector<double>& lengths) {
    for (std::size_t step = 0; step < kNumSiblingSteps; ++step) {
      const double length = interpolate(config.siblings, lengths, kSiblingSteps[step]);
      const double scaled = 1.0 + config.scale * (length - 1.0);
      rows[step].assign(kPositions, even_acceptance(scaled, config.table_drafts));
    }
  };
  fill(linear_, config.accept_length);
  fill(branching_, config.branching_accept_length);
}

DraftGain::DraftGain(Rows linear) : linear_(std::move(linear)), branching_(linear_) {}

double DraftGain::acceptance(std::size_t lane, std::int32_t position, std::int32_t paths) const {
  const std::vector<double>& row = (paths > 1 ? branching_ : linear_)[lane % kNumSiblingSteps];
  const std::size_t k = static_cast<std::size_t>(position - 1);
  return k < row.size() ? row[k] : 0.0;
}

double DraftGain::tokens(std::size_t lane, std::int32_t gamma, std::int32_t paths) const {
  double sum = 1.0;
  double all = 1.0;
  for (std::int32_t k = 1; k <= gamma; ++k) {
    all *= acceptance(lane, k, paths);
    sum += all;
  }
  return sum;
}

}  // namespace rondo::sim
