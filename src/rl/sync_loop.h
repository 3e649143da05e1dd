// SyncLoop: the synchronous training loop. Roll out, score, train, publish; one policy version per step.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "data/prompt_sampler.h"
#include "metrics/eta_estimator.h"
#include "metrics/phase_timer.h"
#include "metrics/step_record.h"
#include "rl/evaluation.h"
#include "rl/generation.h"
#include "rl/policy_update.h"
#include "rl/prompt_digest.h"
#include "rl/prompts.h"
#include "rl/run_folder.h"
#include "rl/session.h"
#include "train/trainer.h"

namespace rondo::rl {

/// Where the loop tells people what happens. All calls come from the loop's thread.
struct LoopObserver {
  std::function<void(std::string_view text)> message;  // a paragraph, with line ends
  std::function<void(std::int64_t step, std::int64_t total, const metrics::StepRecord&,
                     std::optional<double> eta_s)>
      step_done;
  /// Within a phase ("rollout", "evaluation"): responses done of all.
  std::function<void(std::string_view phase, std::int64_t done, std::int64_t total)> progress;
};

/// How a run ended.
struct LoopSummary {
  std::int64_t last_step = 0;
  bool interrupted = false;            // by the flag; the last completed step is saved
  std::optional<double> score_before;  // held-out mean score; of a resumed run, from its log
  std::optional<double> score_after;
  std::string model_folder;  // the newest checkpoint
  std::int64_t peak_memory_bytes = 0;
};

/// Runs GRPO to the end of the configured steps, going on from the run folder's newest checkpoint.
/// What it computes depends on config, data and seed alone; a run that was killed and resumed writes the same
/// deterministic metrics, rollouts and weights. One owner thread.
class SyncLoop final {
 public:
  /// Loads model and data, opens the run folder, restores the newest checkpoint.
  static Result<std::unique_ptr<SyncLoop>> create(const Config& config, const Clock& clock,
                                                  LoopObserver observer,
                                                  const std::atomic<bool>& interrupted);
  Result<LoopSummary> run();

 private:
  SyncLoop(const Clock& clock, LoopObserver observer, const std::atomic<bool>& interrupted)
      : clock_(&clock), observer_(std::move(observer)), interrupted_(&interrupted), timer_(clock) {}
  Result<void> load(const Config& config);
  Result<void> start();
  std::int64_t saves_left() const;  // checkpoints still to come
  Result<void> run_step(std::int64_t step);
  Result<std::vector<ScoredGroup>> roll_out(std::int64_t step, GenerationStats& stats);
  Result<void> write_rollouts(std::int64_t step, const std::vector<ScoredGroup>& groups,
                              const std::vector<std::vector<float>>& advantages);
  std::optional<double> logged_score_before() const;
  Result<double> evaluate_at(std::int64_t step, metrics::StepRecord& record);
  Result<void> save(std::int64_t step);
  Result<LoopSummary> finish(Result<void> outcome);
  void first_step_check(const std::vector<ScoredGroup>& groups, const UpdateSummary& summary);
  bool due(int frequency, std::int64_t step) const { return frequency > 0 && step % frequency == 0; }
  GenerationProgress progress(std::string_view phase) const;

  const Clock* clock_;
  LoopObserver observer_;
  const std::atomic<bool>* interrupted_;
  metrics::PhaseTimer timer_;
  std::unique_ptr<Session> session_;
  PromptSet train_prompts_;
  PromptDigest train_digest_;
  PromptSet val_prompts_;
  reward::RewardFunction reward_;
  std::optional<data::PromptSampler> sampler_;
  std::optional<RunFolder> folder_;
  std::unique_ptr<train::Trainer> trainer_;
  std::unique_ptr<PolicyUpdate> update_;
  std::optional<metrics::EtaEstimator> eta_;
  std::int64_t total_steps_ = 0;
  std::int64_t completed_ = 0;  // last step that is trained and logged
  std::int64_t saved_ = 0;      // step of the newest checkpoint
  LoopSummary summary_;
};

}  // namespace rondo::rl
