// Simulation: one rollout on a simulated cluster, decided by the real scheduler.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "rollout/draft_length.h"
#include "rollout/scheduler.h"
#include "sim/draft_gain.h"
#include "sim/engine_model.h"
#include "sim/outcome.h"
#include "sim/recording.h"

namespace rondo::sim {

/// A cluster of equal instances and how it is driven. Borrows nothing.
struct ClusterSpec {
  EngineModel engine;
  rollout::Scheduler::Config schedule;
  int instances = 1;
  int max_running = 256;
  double watermark = 0.01;
  double chunk_overhead_s = 0.0;
  double host_kv_bytes = 0.0;  // per instance
  double disk_kv_bytes = 0.0;
  bool speculates = false;
  rollout::DraftLengthPlanner::Config drafts = {};
  DraftGain gain;
};

/// The responses to generate.
struct RolloutSpec {
  std::span<const rollout::GroupSpec> groups;  // ids 0, 1, … without gaps, of groups and of requests
  std::int64_t goal = 0;                       // groups that must be complete (`partial`); 0: all
  rollout::LengthPrior prior = {};
  std::uint64_t seed = 0;  // of draft acceptance
  bool checks = false;     // the instances' and the scheduler's invariants after every event; slow, for tests
};

/// Runs the rollout to its end. Deterministic but for the outcome's measured values. `recording` may be null.
/// kResourceExhausted or kInvalidArgument says which setting does not allow it. Any thread.
Result<Outcome> simulate(const ClusterSpec& cluster, const RolloutSpec& rollout, Recording* recording);

}  // namespace rondo::sim
