// Planner: continuous batching for one engine instance, as plan and commit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "batch/drafts.h"
#include "batch/plan.h"
#include "batch/plan_step.h"
#include "batch/roster.h"

namespace rondo::batch {

/// Decides which positions of which sequences are computed together, step by step, and where their KV lies.
///
/// Does not compute, sample, copy memory, or read a clock; what it decides never changes a response, only the
/// order of work. The owner runs `plan(p); carry out p; commit(p, samples, finished);` and may add and cancel
/// between a commit and the next plan. One owner thread. add() is the only call that can be refused, and then
/// nothing changed; a commit of anything but the plan of the present state is a bug and aborts.
class Planner final {
 public:
  struct Config {
    std::int32_t max_batch_tokens = 2048;
    std::int32_t max_running = 64;

    template <class V>
    void visit(V& v) {
      v.field("max_batch_tokens", max_batch_tokens,
              "Most tokens computed in one step, prompts and responses together; at least max_running");
      v.field("max_running", max_running,
              "Most responses in progress at once; more wait. KV blocks may limit it further");
    }
    Result<void> validate() const;
  };

  /// Counters since the planner was made.
  struct Stats {
    std::int64_t steps = 0;
    std::int64_t computed_tokens = 0;       // rows of all steps
    std::int64_t recomputed_tokens = 0;     // of these, rows of positions that a preemption had given up
    std::int64_t shared_prompt_tokens = 0;  // positions taken over from a sibling instead of computed
    std::int64_t restored_tokens = 0;       // positions whose stored KV was put back
    std::int64_t preemptions = 0;           // for want of blocks
    std::int64_t evicted_prefixes = 0;
    std::int64_t evicted_parked = 0;   // parked sequences that lost their KV for want of blocks
    std::int64_t drafted_tokens = 0;   // rows of drafts
    std::int64_t accepted_tokens = 0;  // of these, drafts that the sampled tokens followed
  };

  /// A sequence whose chunk is over. It keeps slot, tokens and blocks until resume() or take().
  struct Parked {
    RequestId id;
    Slot slot;
    std::int32_t num_response = 0;  // tokens of the response so far
  };
  /// How a sequence's draft fared.
  struct Verdict {
    Slot slot;
    std::int32_t drafted_depth = 0;  // of the chain
    std::int32_t accepted = 0;       // drafted tokens that the sampled ones followed
  };
  /// What a step brought.
  struct Outcome {
    std::vector<Finished> finished;
    std::vector<Parked> parked;
    std::vector<Verdict> verdicts;  // of the sequences that had drafts
    void clear();
  };

  /// `num_blocks` is the size of the KV pool, at least 1.
  static Result<std::unique_ptr<Planner>> create(const Config& config, std::int32_t num_blocks);

  /// Queues a request and returns its slot. Refused: an empty prompt, a limit below 1, an id in use, a prompt
  /// other than its group's, or more blocks at full length than the pool has.
  Result<Slot> add(SequenceSpec spec);

  /// Fills `plan` with the next step, `drafts` as far as there is room; empty if and only if no sequence runs
  /// or waits. Changes nothing.
  void plan(Plan& plan, const Drafts& drafts = {}) const;

  /// Makes the plan's changes, appends to each sequence the samples of its rows as far as they follow its
  /// drafts (samples[i] is of plan.logit_rows[i]), and fills `outcome` with the sequences that end, by
  /// Sample::finish, else at max_new_tokens, and those whose chunk is over.
  void commit(const Plan& plan, std::span<const Sample> samples, Outcome& outcome);

  /// A parked sequence goes on for up to `chunk_tokens` (0: to its end); false if it is not parked.
  bool resume(RequestId id, std::int32_t chunk_tokens);

  /// Ends a request now, parked or not, with the tokens it has; nullopt if it is not live (it may just have
  /// finished).
  std::optional<Finished> cancel(RequestId id);

  /// The group's prompt need not be kept for further samples any more (SequenceSpec::keep_prompt).
  void drop_prompt(GroupId group);

  /// For new weights: all KV is void. Residents wait to be recomputed, keeping their tokens.
  void drop_kv();

  std::int32_t num_live() const { return roster_.num_live(); }
  const Roster& roster() const { return roster_; }
  const StepLimits& limits() const { return limits_; }
  const Stats& stats() const { return stats_; }
  /// Aborts if the state contradicts itself. For tests; O(sequences + blocks).
  void check_invariants() const { roster_.check_invariants(); }

 private:
  Planner(const Config& config, std::int32_t num_blocks);
  void apply_placement(const Plan& plan);
  void advance(const Segment& segment, std::span<const BlockId> table);
  void accept(const Plan& plan, const Segment& segment, std::span<const Sample> samples, Outcome& outcome);
  std::optional<FinishReason> follow(const Plan& plan, const Segment& segment,
                                     std::span<const Sample> samples);
  void keep_branch(const Plan& plan, const Segment& segment);

  StepLimits limits_;
  Roster roster_;
  Stats stats_;
  std::vector<Token> followed_;  // of one segment: the sampled tokens
  std::int32_t last_row_ = 0;    // and the row of the last of them
  std::int64_t version_ = 0;     // counts changes, so that a stale plan is noticed
};

}  // namespace rondo::batch
