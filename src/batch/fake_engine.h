// FakeEngine: drives a Planner against a memory of slots and checks each step against a naive model. Tests
// only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
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
  /// `stop_period`: one token in so many ends its response.
  FakeEngine(Planner& planner, std::uint32_t stop_period);

  void add(const SequenceSpec& spec);
  void cancel(RequestId id);
  void drop_kv();
  /// plan, check, copy, compute, sample, commit, check.
  void step();
  bool failed() const;

  /// The response that `spec` has with no batching at all.
  std::vector<Token> naive_response(const SequenceSpec& spec) const;
  const std::map<RequestId, Finished>& finished() const { return finished_; }
  const Plan& last_plan() const { return plan_; }
  /// Cached prompts that became a sequence's own so far.
  std::int64_t num_taken_over() const { return num_taken_over_; }
  /// A digest of every decision so far.
  std::uint64_t digest() const { return digest_; }

 private:
  struct Model {
    SequenceSpec spec;
    std::int64_t arrival = 0;
    std::vector<Token> known;
    std::int32_t computed = 0;
    bool resident = false;
  };

  void check_limits() const;
  void check_priorities() const;
  void apply_releases();
  void apply_admissions();
  void check_holders() const;
  void check_reads(const Segment& segment) const;
  void copy(const kv::BlockCopy& copy);
  void compute(const Segment& segment);
  std::vector<Sample> sample();
  void record(const Finished& finished);
  Sample next(const SequenceSpec& spec, std::uint64_t content) const;
  static std::size_t place(std::span<const BlockId> table, std::int32_t position);  // in memory_
  void mix_digest();

  Planner& planner_;
  std::uint32_t stop_period_;
  Plan plan_;
  std::vector<Finished> ended_;
  std::vector<std::uint64_t> memory_;  // [num_blocks, kBlockTokens]
  std::vector<RequestId> writers_;     // per block, since it was last free
  std::map<RequestId, Model> live_;
  std::map<RequestId, Finished> finished_;
  std::int64_t next_arrival_ = 0;
  std::int64_t num_taken_over_ = 0;
  std::uint64_t digest_ = 0;
};

}  // namespace rondo::batch
