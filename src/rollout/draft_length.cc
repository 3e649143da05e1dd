#include "rollout/draft_length.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace rondo::rollout {
namespace {

constexpr std::size_t kFirstProbe = kNumDraftClasses / 2;

}  // namespace

std::int32_t DraftLoad::probes() const {
  return std::accumulate(running.begin() + kFirstProbe, running.end(), 0);
}

std::int32_t DraftLoad::others() const {
  return std::accumulate(running.begin(), running.begin() + kFirstProbe, 0);
}

DraftLengths split_budget(std::int32_t probes, std::int32_t others, std::span<const double> probe_acceptance,
                          std::span<const double> other_acceptance, double probe_weight,
                          std::int64_t budget) {
  RONDO_CHECK_EQ(probe_acceptance.size(), other_acceptance.size());
  RONDO_CHECK(probe_weight >= 1.0 && probes >= 0 && others >= 0);
  const auto max_gamma = static_cast<std::int32_t>(other_acceptance.size());
  const auto gain = [](std::span<const double> p, std::int32_t gamma) {
    return p[static_cast<std::size_t>(gamma)];
  };
  DraftLengths lengths;
  while (budget > 0) {
    const bool probe_fits = probes > 0 && lengths.probe < max_gamma && budget >= probes;
    const bool behind = probes == 0 || lengths.other < lengths.probe;
    const bool other_fits = others > 0 && lengths.other < max_gamma && behind && budget >= others;
    if (!probe_fits && !other_fits) break;
    bool to_probes = probe_fits;
    if (probe_fits && other_fits) {
      const double other_gain = gain(other_acceptance, lengths.other);
      const double probe_gain =
          std::max(gain(probe_acceptance, lengths.probe), gain(other_acceptance, lengths.probe));
      to_probes = lengths.other > 0 && probe_weight * probe_gain >= other_gain;
    }
    (to_probes ? lengths.probe : lengths.other) += 1;
    budget -= to_probes ? probes : others;
  }
  if (probes == 0) lengths.probe = lengths.other;
  if (others == 0) lengths.other = lengths.probe;
  return lengths;
}

DraftLengthPlanner::DraftLengthPlanner(const Config& config, StepCost cost)
    : config_(config), cost_(std::move(cost)), acceptance_({.max_gamma = std::max(1, config.max_gamma)}) {}

std::vector<double> DraftLengthPlanner::mean_acceptance(const DraftLoad& load, std::size_t first,
                                                        std::size_t last) const {
  std::vector<double> sum(static_cast<std::size_t>(config_.max_gamma), 0.0);
  std::int32_t count = 0;
  for (std::size_t c = first; c < last; ++c) {
    if (load.running[c] == 0) continue;
    const std::vector<double> p = acceptance_.cumulative(c);
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += load.running[c] * p[k];
    count += load.running[c];
  }
  for (double& value : sum) value /= std::max(1, count);
  return sum;
}

double DraftLengthPlanner::token_cost(const DraftLoad& load, std::int32_t gamma) const {
  const std::int32_t batch = load.probes() + load.others();
  RONDO_CHECK(batch > 0 && gamma >= 0 && gamma <= config_.max_gamma);
  const std::vector<double> p = mean_acceptance(load, 0, kNumDraftClasses);
  const double tokens = std::accumulate(p.begin(), p.begin() + gamma, 1.0);
  return cost_.seconds(batch, gamma, load.mean_context) / (batch * tokens);
}

std::int32_t DraftLengthPlanner::uniform_length(const DraftLoad& load) const {
  std::int32_t best = 0;
  double best_cost = token_cost(load, 0);
  for (std::int32_t gamma = 1; gamma <= config_.max_gamma; ++gamma) {
    const double cost = token_cost(load, gamma);
    if (cost < best_cost) {
      best = gamma;
      best_cost = cost;
    }
  }
  const bool last_will_do = token_cost(load, last_uniform_) <= best_cost * (1.0 + config_.hysteresis);
  return last_will_do ? last_uniform_ : best;
}

DraftLengths DraftLengthPlanner::plan(const DraftLoad& load) const {
  const std::int32_t batch = load.probes() + load.others();
  if (batch == 0 || config_.max_gamma == 0) return {};
  const std::int32_t paths = batch < config_.multi_path_below ? config_.paths : 1;
  const std::int32_t gamma = uniform_length(load);
  if (gamma == 0) {
    if (steps_without_ + 1 < config_.explore_period) return {};
    return {.probe = 1, .other = 1, .paths = 1};
  }
  DraftLengths lengths =
      split_budget(load.probes(), load.others(), mean_acceptance(load, kFirstProbe, kNumDraftClasses),
                   mean_acceptance(load, 0, kFirstProbe), config_.probe_weight, std::int64_t{gamma} * batch);
  lengths.paths = paths;
  return lengths;
}

void DraftLengthPlanner::commit(const DraftLoad& load, const DraftLengths& lengths) {
  RONDO_CHECK(lengths == plan(load));
  if (load.probes() + load.others() == 0 || config_.max_gamma == 0) return;
  last_uniform_ = uniform_length(load);
  steps_without_ = lengths.probe + lengths.other > 0 ? 0 : steps_without_ + 1;
}

void DraftLengthPlanner::observe(const DraftClass& draft_class, std::int32_t drafted, std::int32_t accepted) {
  acceptance_.observe(draft_class, drafted, accepted);
}

}  // namespace rondo::rollout
