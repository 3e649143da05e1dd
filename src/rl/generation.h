// Generation: groups of responses from the engine, each scored as it ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/status.h"
#include "engine/engine.h"
#include "reward/reward.h"
#include "rl/config.h"
#include "rl/prompts.h"
#include "rl/session.h"
#include "timeline/recorder.h"

namespace rondo::rl {

/// One scored response.
struct ScoredResponse {
  engine::Response response;
  std::string text;  // without the token that ended it and without special tokens
  reward::RewardResult reward;
};

/// All responses to one prompt, by sample index.
struct ScoredGroup {
  const Prompt* prompt = nullptr;
  std::vector<ScoredResponse> samples;
};

/// What to generate: one group per prompt, in issue order.
struct GenerationTask {
  std::span<const Prompt* const> prompts;
  const SamplingSection* sampling = nullptr;
  RngPurpose purpose = RngPurpose::kRollout;
  std::uint32_t step = 0;                           // issue step, part of every random number
  std::span<const std::int32_t> true_lengths = {};  // by prompt and sample, for the oracle policies
  /// By prompt and sample: each response has exactly so many tokens, whatever would end it, and the scheduler
  /// is not told. At most data.max_response_length. Empty: natural lengths.
  std::span<const std::int32_t> exact_lengths = {};
  std::int64_t goal_groups = 0;            // `partial`: complete groups wanted
  timeline::Recorder* timeline = nullptr;  // gets what runs when, by the steady clock
};

/// Counts of one call.
struct GenerationStats {
  double reward_seconds = 0;
  std::int64_t preemptions = 0;
  std::int64_t recomputed_tokens = 0;  // after preemptions; beside dispatch's
  std::int64_t drafted_tokens = 0;
  std::int64_t accepted_tokens = 0;
  engine::Drafting::Stats drafting = {};
  rollout::Dispatcher::Stats dispatch = {};
};

/// Called after each response; done and total count responses.
using GenerationProgress = std::function<void(std::int64_t done, std::int64_t total)>;

/// Runs the session's engine until every group is complete. kCancelled as soon as `interrupted` is true; the
/// engine is idle again then. What is generated depends on the task, the weights and config.trainer.seed
/// alone. `reward` may be empty: scores are then 0.
Result<std::vector<ScoredGroup>> generate(Session& session, const GenerationTask& task,
                                          const reward::RewardFunction& reward,
                                          const std::atomic<bool>& interrupted, GenerationStats& stats,
                                          const GenerationProgress& progress = {});

}  // namespace rondo::rl
