// Drafting: one simulated instance's draft lengths, chosen by the planner that real instances have.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "rollout/draft_length.h"
#include "rollout/input_log.h"
#include "sim/draft_gain.h"

namespace rondo::sim {

/// Requests that run on an instance, by lane.
using LaneCounts = std::array<std::int32_t, kNumLanes>;

/// Plans draft lengths for what runs and tells the planner how drafts fare, drawn from a DraftGain.
///
/// A plan is kept while little changes: real instances plan at each step, and find the same. Deterministic in
/// the seed and the calls. One owner thread.
class Drafting final {
 public:
  Drafting(const rollout::DraftLengthPlanner::Config& config, const rollout::StepCost& cost,
           const DraftGain& gain, std::uint64_t seed);

  /// Called whenever what runs has changed; `steps` were done since the last call. Returns whether there is a
  /// new plan. `log` may be null.
  bool replan(const LaneCounts& running, std::int32_t mean_context, double steps,
              std::vector<rollout::TimedInput>* log);

  /// Tokens per step of a request in the lane.
  double rate(std::size_t lane) const { return rates_[lane]; }
  /// Tokens computed per step for these requests.
  double rows(const LaneCounts& running) const;

 private:
  bool is_due(std::int32_t running) const;
  void observe(const LaneCounts& running, const rollout::DraftLengths& lengths,
               std::vector<rollout::TimedInput>* log);
  std::int32_t draw_accepted(std::size_t lane, std::int32_t gamma);
  double uniform();

  rollout::DraftLengthPlanner planner_;
  const DraftGain* gain_;
  std::uint64_t random_;
  rollout::DraftLengths lengths_;
  std::array<double, kNumLanes> rates_;
  std::int32_t planned_for_ = 0;  // requests; 0: never planned
  double steps_since_ = 0.0;
};

}  // namespace rondo::sim
