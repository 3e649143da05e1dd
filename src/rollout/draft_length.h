// DraftLengthPlanner: how many draft tokens probes and other requests verify per step (MBA).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "rollout/acceptance.h"
#include "rollout/step_cost.h"

namespace rondo::rollout {

/// Draft tokens per request and step.
struct DraftLengths {
  std::int32_t probe = 0;
  std::int32_t other = 0;
  std::int32_t paths = 1;  // branches kept at a fork; above 1 only where few requests run
  bool operator==(const DraftLengths&) const = default;
};

/// What runs now, by class.
struct DraftLoad {
  std::array<std::int32_t, kNumDraftClasses> running{};
  std::int32_t mean_context = 0;  // tokens per request

  void add(const DraftClass& draft_class) { ++running[draft_class_index(draft_class)]; }
  std::int32_t probes() const;
  std::int32_t others() const;
  bool operator==(const DraftLoad&) const = default;
};

/// Splits `budget` draft tokens per step by marginal gain: one position more for a class costs a token per
/// request and brings P(gamma + 1) tokens per request, so the next position goes to the probes while
/// probe_weight * P_probe >= P_other, else to the others, and what no longer fits the one goes to the other.
/// P are cumulative acceptances by position, descending; probes count with the larger of both, and the others
/// never get ahead, so probes never get less. While the budget allows one token each, each gets it. (Seer,
/// arXiv 2511.14617, Algorithm 1 of v3; the rule as printed there does the opposite.) An empty class gets
/// what the other does.
DraftLengths split_budget(std::int32_t probes, std::int32_t others, std::span<const double> probe_acceptance,
                          std::span<const double> other_acceptance, double probe_weight, std::int64_t budget);

/// Chooses draft lengths so that a token costs the least time, from measured step costs and learned
/// acceptance.
///
/// gamma = 0 is a candidate, so a speculation that does not pay is off; then one step in `explore_period`
/// drafts one token, or acceptance would never be learned again. A choice is kept unless another is better by
/// `hysteresis`. Does not draft. Deterministic in its inputs; one owner thread.
class DraftLengthPlanner final {
 public:
  struct Config {
    int max_gamma = 8;
    double probe_weight = 2.0;
    double hysteresis = 0.03;
    int explore_period = 50;
    int multi_path_below = 4;
    int paths = 2;

    template <class V>
    void visit(V& v) {
      v.field("max_gamma", max_gamma, "Most draft tokens per response and step; 0: no speculation",
              {.min = 0, .max = 64});
      v.field("probe_weight", probe_weight, "How much more a probe's expected token counts than another's",
              {.min = 1});
      v.field("hysteresis", hysteresis, "Gain per token that a change of the draft length must promise",
              {.min = 0, .below = 1});
      v.field("explore_period", explore_period,
              "Where speculation does not pay, one step in so many still drafts a token to learn",
              {.min = 2});
      v.field("multi_path_below", multi_path_below, "Responses in a step below which drafts branch; 0: never",
              {.min = 0});
      v.field("paths", paths, "Branches kept at a fork of a branching draft", {.min = 1, .max = 8});
    }
  };

  DraftLengthPlanner(const Config& config, StepCost cost);

  /// The lengths for the next step of this load. Changes nothing.
  DraftLengths plan(const DraftLoad& load) const;
  /// Says that `lengths`, the plan for this load, are used for a step.
  void commit(const DraftLoad& load, const DraftLengths& lengths);
  /// See AcceptanceTable.
  void observe(const DraftClass& draft_class, std::int32_t drafted, std::int32_t accepted);

  /// Seconds per generated token if every request of the load drafts `gamma` tokens.
  double token_cost(const DraftLoad& load, std::int32_t gamma) const;
  /// The uniform length that plan() starts from: the best one, or the last one if it is nearly as good.
  std::int32_t uniform_length(const DraftLoad& load) const;
  const AcceptanceTable& acceptance() const { return acceptance_; }

 private:
  // Mean cumulative acceptance over the classes [first, last) of the load.
  std::vector<double> mean_acceptance(const DraftLoad& load, std::size_t first, std::size_t last) const;

  Config config_;
  StepCost cost_;
  AcceptanceTable acceptance_;
  std::int32_t last_uniform_ = 0;
  std::int64_t steps_without_ = 0;  // since a draft was last verified
};

}  // namespace rondo::rollout
