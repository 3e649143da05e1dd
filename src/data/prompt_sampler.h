// PromptSampler: which prompts a step trains on.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace rondo::data {

/// Deals the prompts of a dataset into batches, epoch after epoch, each epoch in an order of its own.
///
/// The epochs laid end to end are one endless stream of prompt indices; batch `step` is its elements
/// [step·batch_size, (step+1)·batch_size), and an element's place in the batch is its ordinal, the issue
/// order. Nothing is dropped at the end of an epoch: a batch runs on into the next, so over any number of
/// epochs every prompt is used equally often. The tail of the last epoch of a run is dropped (num_steps). A
/// batch that spans epochs, or is larger than the dataset, may hold a prompt twice.
///
/// Holds no position, so resuming needs the step alone: every answer is a function of Config, the step and
/// the number of prompts. Immutable; any thread.
class PromptSampler final {
 public:
  struct Config {
    std::int64_t batch_size = 1;
    bool shuffle = true;     // false: every epoch in file order
    std::uint32_t seed = 0;  // of the run; the stream is keyed (seed, RngPurpose::kShuffle)
  };

  /// num_prompts in [1, 2^32), batch_size in [1, 2^32).
  static Result<PromptSampler> create(const Config& config, std::int64_t num_prompts);

  /// Prompt indices of batch `step` >= 0, in issue order. O(num_prompts) time for each epoch that it touches.
  std::vector<std::int64_t> batch(std::int64_t step) const;
  /// The order of all prompts in epoch `epoch`.
  std::vector<std::int64_t> epoch_order(std::int64_t epoch) const;
  /// The epoch in which batch `step` starts.
  std::int64_t epoch_of(std::int64_t step) const;
  /// Whole batches in `num_epochs` epochs.
  std::int64_t num_steps(std::int64_t num_epochs) const;

 private:
  PromptSampler(const Config& config, std::int64_t num_prompts)
      : config_(config), num_prompts_(num_prompts) {}
  std::int64_t stream_begin(std::int64_t step) const;

  Config config_;
  std::int64_t num_prompts_;
};

}  // namespace rondo::data
