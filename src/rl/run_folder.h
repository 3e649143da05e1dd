// RunFolder: where a run keeps its files, and what a resumed run finds there.
//
//   run_dir/
//     config.toml                        as resolved
//     metrics.jsonl                      a line per step
//     rollouts/step_N.jsonl              every response of step N
//     timeline/last.{html,json}          what ran when in the newest step, or step_N.* of each
//     checkpoints/global_step_N/         a Hugging Face model folder …
//     checkpoints/global_step_N/trainer/ … and state.safetensors, the trainer's state, length_prior.json,
//                                        what the rollouts have learned of lengths, and train_prompts.json,
//                                        a checksum of what was trained on
//     checkpoints/latest                 name of the newest whole checkpoint
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/file_lock.h"
#include "base/status.h"
#include "metrics/metrics_log.h"
#include "rl/config.h"
#include "rl/prompt_digest.h"
#include "rl/session.h"
#include "train/trainer.h"

namespace rondo::rl {

/// A whole checkpoint.
struct Checkpoint {
  std::filesystem::path folder;
  std::int64_t global_step = 0;  // the last step that is in it
};

/// The checkpoints that a run is still to write.
struct CheckpointPlan {
  std::int64_t bytes = 0;  // of each, > 0
  std::int64_t saves = 0;
  int keep = 0;  // trainer.max_ckpt_to_keep
};

/// The files of one run. One process at a time. One owner thread.
class RunFolder final {
 public:
  /// Creates the folder, or opens it to resume: every log is cut back to the newest checkpoint's step (0 if
  /// there is none), and what a killed process left half done is removed. kInvalidArgument if it holds a run
  /// and resume_mode is disable, kResourceExhausted if another process uses it, kDataLoss if `latest` is gone
  /// or names no checkpoint; the run's files are as before then.
  static Result<RunFolder> open(const Config& config);

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path metrics() const { return root_ / "metrics.jsonl"; }
  std::filesystem::path rollouts() const { return root_ / "rollouts"; }
  std::filesystem::path timelines() const { return root_ / "timeline"; }
  std::filesystem::path checkpoints() const { return root_ / "checkpoints"; }
  /// The checkpoint to go on from.
  const std::optional<Checkpoint>& checkpoint() const { return checkpoint_; }
  std::int64_t first_step() const { return checkpoint_ ? checkpoint_->global_step + 1 : 1; }

  /// Appends a step's line to metrics.jsonl.
  Result<void> log_step(std::int64_t step, const metrics::StepRecord& record);

  /// kResourceExhausted if the disk cannot hold what of `plan` will exist at a time, beside what is there:
  /// hours of training would end unsaved.
  Result<void> check_space(const CheckpointPlan& plan) const;

  /// Publishes the model and the trainer's state after `step`, trained on `prompts`, then removes checkpoints
  /// beyond config.max_ckpt_to_keep. A process killed anywhere in here leaves the old newest checkpoint or
  /// the new one, whole.
  Result<Checkpoint> save(std::int64_t step, const Session& session, const train::Trainer& trainer,
                          const PromptDigest& prompts);
  /// Restores the trainer and the model's weights from `checkpoint`. If it is damaged, the error says how to
  /// go on without it.
  static Result<void> load(const Checkpoint& checkpoint, train::Trainer& trainer);
  /// What the checkpoint knows of response lengths: nothing if an earlier version wrote it or, with a
  /// warning, if the file is damaged, for it changes speed alone.
  static rollout::LengthPrior load_length_prior(const Checkpoint& checkpoint);
  /// Warns if the checkpoint was not trained on `prompts`, which the run goes on with; says nothing of one
  /// that an earlier version wrote.
  static void warn_of_other_prompts(const Checkpoint& checkpoint, const PromptDigest& prompts);

 private:
  RunFolder(std::filesystem::path root, FileLock lock, metrics::MetricsLog log,
            std::optional<Checkpoint> checkpoint)
      : root_(std::move(root)),
        lock_(std::move(lock)),
        log_(std::move(log)),
        checkpoint_(std::move(checkpoint)) {}

  std::filesystem::path root_;
  FileLock lock_;
  metrics::MetricsLog log_;
  std::optional<Checkpoint> checkpoint_;
};

}  // namespace rondo::rl
