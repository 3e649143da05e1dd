// Comparison: variants of a workload, each simulated with the same seeds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/outcome.h"
#include "sim/recording.h"
#include "sim/workload.h"

namespace rondo::sim {

/// Outcomes of one variant, by seed.
struct VariantOutcomes {
  std::string label;
  std::vector<Outcome> outcomes;
};

/// A value over seeds.
struct Spread {
  double mean = 0.0;
  double least = 0.0;
  double most = 0.0;
};
Spread spread_of(const std::vector<double>& values);

/// Simulates one seed of a variant. `recording` may be null. Any thread.
Result<Outcome> simulate_seed(const Workload& workload, std::uint64_t seed, Recording* recording);

/// The timeline of each variant's first seed.
Result<std::vector<timeline::Timeline>> record_timelines(const std::vector<Variant>& variants);

/// Simulates every variant with the seeds workload.seed, workload.seed + 1, … on so many threads. The
/// outcomes do not depend on the number of threads, but for measured values. The first error in the order of
/// variants and seeds is returned.
Result<std::vector<VariantOutcomes>> compare(const std::vector<Variant>& variants, int num_seeds,
                                             int num_threads);

}  // namespace rondo::sim
