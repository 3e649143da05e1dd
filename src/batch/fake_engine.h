// FakeEngine: drives a Planner against a memory of slots and checks each step against a naive model. Tests
// only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "batch/planner.h"

namespace rondo::batch {

/// Carries plans out on a memory in which a slot's content is a hash of all tokens up to its position, so
/// that reading a wrong, stale or foreign slot is noticed.
///
/// Its "language model" is a hash of the tokens so far: a response depends on the request alone, never on the
/// schedule. Any deviation is a gtest failure; failed() then says to stop.
class FakeEngine final {
 public:
  struct Behaviour {
    std::uint32_t stop_period = 1000;  // one token in so many ends its response
    int draft_percent = 0;   // of decoding sequences that get a draft, a random tree of partly right tokens
    int max_chunk = 0;       // requests come in chunks of 1 to this many tokens; 0: whole
    std::uint64_t seed = 1;  // of drafts, chunks and what becomes of parked requests
  };
  FakeEngine(Planner& planner, const Behaviour& behaviour);

  void add(SequenceSpec spec);
  void cancel(RequestId id);
  void drop_kv();
  /// Parked requests go on, here, moved with their KV, or moved without; then plan, check, restore, copy,
  /// compute, sample, commit, check.
  void step();
  bool failed() const;

  /// The response that `spec` has with no batching at all.
  std::vector<Token> naive_response(const SequenceSpec& spec) const;
  const std::map<RequestId, Finished>& finished() const { return finished_; }
  const Plan& last_plan() const { return plan_; }
  /// Cached prompts that became a sequence's own so far.
  std::int64_t num_taken_over() const { return num_taken_over_; }
  /// Accepted drafts that lay in a branch's rows.
  std::int64_t num_branch_rows_accepted() const { return num_branch_rows_accepted_; }
  /// A digest of every decision so far.
  std::uint64_t digest() const { return digest_; }

 private:
  struct Model {
    SequenceSpec spec;
    std::int64_t arrival = 0;
    std::vector<Token> known;
    std::int32_t computed = 0;
    bool resident = false;
    bool parked = false;
    std::vector<std::uint64_t> stored = {};  // the slots that were put by when it moved
  };

  bool happens(int percent) { return static_cast<int>(random_() % 100) < percent; }
  std::int32_t draw_chunk();
  void handle_parked();
  void move(RequestId id, bool with_kv);
  void submit(Model model);
  void make_drafts();
  std::int64_t num_running() const;
  void forget_writers_of_free_blocks();
  void check_limits() const;
  void check_priorities() const;
  void apply_releases();
  void apply_admissions();
  void check_holders() const;
  void check_reads(std::span<const BlockId> table, std::int32_t end, const Segment& segment) const;
  void restore(const Restore& restore);
  void copy(const kv::BlockCopy& copy);
  void compute(const Segment& segment);
  void compute_row(const Segment& segment, std::span<const BlockId> table, std::int32_t row,
                   std::uint64_t before);
  void compute_branch(const Segment& segment, const Branch& branch);
  void write(RequestId id, std::span<const BlockId> table, std::int32_t position, std::uint64_t content);
  std::vector<Sample> sample() const;
  void check_progress(const Segment& segment);
  std::int32_t longest_agreement(const Segment& segment, std::span<const Token> truth) const;
  std::span<const BlockId> branch_table(const Branch& branch) const;
  void record(const Finished& finished);
  Sample next(const SequenceSpec& spec, std::uint64_t content) const;
  static std::size_t place(std::span<const BlockId> table, std::int32_t position);  // in memory_
  void mix_digest();

  Planner& planner_;
  Behaviour behaviour_;
  std::mt19937_64 random_;
  Plan plan_;
  Drafts drafts_;
  Planner::Outcome outcome_;
  std::vector<std::uint64_t> memory_;  // [num_blocks, kBlockTokens]
  std::vector<RequestId> writers_;     // per block, since it was last free
  std::vector<std::uint64_t> row_contents_;
  std::map<RequestId, Model> live_;
  std::map<RequestId, Finished> finished_;
  std::int64_t next_arrival_ = 0;
  std::int64_t num_taken_over_ = 0;
  std::int64_t num_branch_rows_accepted_ = 0;
  std::uint64_t digest_ = 0;
};

}  // namespace rondo::batch
