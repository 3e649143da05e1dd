// Report: outcomes as text for the terminal and as JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/comparison.h"
#include "sim/workload.h"

namespace rondo::sim {

/// A row per variant: means over seeds, ranges in brackets, and ratios to the first variant seed by seed.
std::string comparison_table(const CompareConfig& compare, const std::vector<VariantOutcomes>& all);
/// A row per variant and seed.
std::string seed_table(const std::vector<VariantOutcomes>& all);
/// One JSON object per variant and seed, each on a line. Measured values stand under "measured"; `setting`,
/// of a sweep, may be empty.
std::string outcomes_json(const std::vector<VariantOutcomes>& all, std::string_view setting);

}  // namespace rondo::sim
