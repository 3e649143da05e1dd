// Comparison: variants of a workload, each simulated with the same seeds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/outcome.h"
#include "sim/workload.h"
#include "timeline/timeline.h"

namespace rondo::sim {

/// Outcomes of one variant, by seed, and what the first seed looked like, if that was asked for.
struct VariantOutcomes {
  std::string label;
  std::vector<Outcome> outcomes;
  std::optional<timeline::Timeline> timeline = {};
};

/// How often and how a comparison is simulated.
struct CompareOptions {
  int num_seeds = 1;
  int num_threads = 1;  // at most; no more than there are simulations are started
  bool records_first = false;
};

/// Simulates every variant with the seeds workload.seed, workload.seed + 1, … The outcomes do not depend on
/// the number of threads, but for measured values. The first error in the order of variants and seeds is
/// returned. Refused: several seeds where all would be alike (traces, without speculation).
Result<std::vector<VariantOutcomes>> compare(const std::vector<Variant>& variants,
                                             const CompareOptions& options);

/// A value over seeds.
struct Spread {
  double mean = 0.0;
  double least = 0.0;
  double most = 0.0;
};
/// A figure of an outcome.
using Figure = double (*)(const Outcome&);
double speed_of(const Outcome& outcome);
double total_of(const Outcome& outcome);
double tail_of(const Outcome& outcome);

Spread spread_of(const VariantOutcomes& variant, Figure figure);
double mean_of(const VariantOutcomes& variant, Figure figure);
/// Of each seed, the variant's figure over the base's; nullopt where one of the base's is 0.
std::optional<Spread> ratio_of(const VariantOutcomes& variant, const VariantOutcomes& base, Figure figure);

}  // namespace rondo::sim
