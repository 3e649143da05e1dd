#include "rollout/acceptance.h"

#include <algorithm>

#include "base/check.h"

namespace rondo::rollout {
namespace {

// What a class believes before its own observations outweigh the average of all.
constexpr double kPriorWeight = 50.0;

}  // namespace

std::size_t draft_class_index(const DraftClass& draft_class) {
  const std::int32_t n = draft_class.finished_siblings;
  const std::size_t bucket = n >= 5 ? 3 : n >= 2 ? 2 : n >= 1 ? 1 : 0;
  return (draft_class.is_probe ? kNumDraftClasses / 2 : 0) + bucket;
}

AcceptanceTable::AcceptanceTable(const Config& config) : config_(config) {
  RONDO_CHECK(config.max_gamma >= 1 && config.initial > 0.0 && config.initial < 1.0 && config.memory >= 1.0);
  all_.resize(static_cast<std::size_t>(config.max_gamma));
  classes_.fill(all_);
}

void AcceptanceTable::add(Positions& positions, std::int32_t drafted, std::int32_t accepted) const {
  // The first rejected position is seen; those behind it are not.
  const std::int32_t seen = std::min(drafted, std::min(accepted, config_.max_gamma - 1) + 1);
  for (std::int32_t k = 0; k < seen; ++k) {
    Average& average = positions[static_cast<std::size_t>(k)];
    average.weight = std::min(average.weight + 1.0, config_.memory);
    average.value += ((k < accepted ? 1.0 : 0.0) - average.value) / average.weight;
  }
}

void AcceptanceTable::observe(const DraftClass& draft_class, std::int32_t drafted, std::int32_t accepted) {
  RONDO_CHECK(accepted >= 0 && accepted <= drafted);
  add(all_, drafted, accepted);
  add(classes_[draft_class_index(draft_class)], drafted, accepted);
}

double AcceptanceTable::conditional(std::size_t draft_class, std::int32_t position) const {
  RONDO_CHECK(position >= 1 && position <= config_.max_gamma);
  const auto k = static_cast<std::size_t>(position - 1);
  const Average& all = all_[k];
  const double base = (all.value * all.weight + config_.initial * kPriorWeight) / (all.weight + kPriorWeight);
  const Average& own = classes_[draft_class][k];
  return (own.value * own.weight + base * kPriorWeight) / (own.weight + kPriorWeight);
}

std::vector<double> AcceptanceTable::cumulative(std::size_t draft_class) const {
  std::vector<double> product;
  double p = 1.0;
  for (std::int32_t k = 1; k <= config_.max_gamma; ++k) {
    p *= conditional(draft_class, k);
    product.push_back(p);
  }
  return product;
}

}  // namespace rondo::rollout
