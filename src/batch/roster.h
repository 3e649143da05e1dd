// Roster: all live sequences of a planner, their groups, queues and blocks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "batch/sequence.h"
#include "kv/block_pool.h"
#include "kv/prefix.h"

namespace rondo::batch {

/// The live samples of one prompt, or one that is kept for samples to come. Its KV is in at most one of three
/// places: being computed by one resident sample, held by resident samples that have it, or in the prefix
/// cache.
struct Group {
  std::shared_ptr<const std::vector<Token>> prompt;
  std::int32_t num_live = 0;
  bool keeps_prompt = false;    // a sample asked for it
  std::vector<Slot> residents;  // those that hold blocks, parked ones too
};

/// The blocks that a sequence starts with.
struct Admission {
  Slot slot;
  GroupId group;
  std::int32_t num_shared_blocks = 0;  // its first blocks, held by a sibling or the cache too
  std::int32_t num_shared_tokens = 0;  // positions that are in them or in the copied tail
  std::int32_t num_ready_tokens = 0;   // positions that it need not compute, restored ones too
  bool takes_cached_prefix = false;    // the group's cache entry, tail included, becomes the sequence's
};

/// Where a group's prompt lies, but for its last position.
struct PromptBlocks {
  std::span<const BlockId> blocks;
  std::int32_t num_tokens = 0;
  bool empty() const { return blocks.empty(); }
};

/// Keeps the state that plans are made from, and makes each single change to it.
///
/// Does not choose: plan_step() does, and Planner applies its choice through the calls below. One owner
/// thread. A change that does not fit the state is a bug and aborts; only add() can be refused, and then
/// nothing changed.
class Roster final {
 public:
  Roster(std::int32_t num_blocks, std::int32_t max_running);

  const kv::BlockPool& pool() const { return pool_; }
  const kv::PrefixCache& prefixes() const { return prefixes_; }
  /// Valid until the next add().
  const Sequence& sequence(Slot slot) const;
  const Group& group(GroupId group) const { return groups_.at(group); }
  /// Running sequences, which hold blocks, in order of arrival.
  std::span<const Slot> residents() const { return residents_; }
  /// Parked sequences that hold blocks, oldest first.
  std::span<const Slot> parked() const { return parked_; }
  /// Sequences that wait for blocks, by arrival.
  const std::map<std::int64_t, Slot>& waiting() const { return waiting_; }
  std::optional<Slot> find(RequestId id) const;
  /// The blocks that hold the group's prompt; empty if it is not computed, or has one token. Valid until the
  /// next change.
  PromptBlocks prompt_blocks(GroupId group) const;
  std::int32_t num_live() const { return static_cast<std::int32_t>(by_id_.size()); }

  /// Queues a sequence, or says why it can never run here.
  Result<Slot> add(SequenceSpec spec);
  /// Starts a waiting sequence; blocks[num_shared_blocks …] are free ones, but for a taken-over tail.
  void admit(const Admission& admission, std::span<const BlockId> blocks);
  /// Adds free blocks to a resident sequence.
  void grow(Slot slot, std::span<const BlockId> free_blocks);
  /// See Sequence::advance.
  std::int32_t advance(Slot slot, std::int32_t end);
  void append(Slot slot, Token token);
  void replace_tail(Slot slot, std::int32_t num_kept, std::span<const BlockId> tail);
  /// A running sequence gives its blocks up and waits at its place by arrival.
  void preempt(Slot slot);
  /// A decoding sequence reached its chunk's end: it keeps its blocks and stops running.
  void park(Slot slot);
  /// A parked sequence that holds blocks gives them up.
  void evict_parked(Slot slot);
  /// A parked sequence goes on at its place by arrival: it runs if it holds blocks, else it waits for them.
  void resume(Slot slot, std::int32_t chunk_tokens);
  /// The group's blocks in the prefix cache are free.
  void evict_prefix(GroupId group);
  /// The group's prompt is no longer kept beyond its live samples.
  void drop_prompt(GroupId group);
  /// Takes a sequence out. The blocks of its prompt stay in the cache if it was their last holder and
  /// siblings wait, or the group keeps its prompt: then until they are evicted or dropped.
  Finished remove(Slot slot, FinishReason reason);
  /// All KV is void: every resident is preempted, every parked one evicted, and the cache cleared.
  void drop_kv();

  /// Aborts unless queues, groups and block counts agree. O(everything).
  void check_invariants() const;

 private:
  Sequence& at(Slot slot);
  Result<void> check_spec(const SequenceSpec& spec) const;
  Slot take_slot(Sequence sequence);
  void insert_resident(Slot slot);
  kv::BlockTable take_blocks(Slot slot);
  bool keeps_prefix(const Sequence& leaving) const;
  void forget_if_unused(GroupId group);
  void check_blocks() const;
  void check_groups() const;

  kv::BlockPool pool_;  // outlives every table below
  kv::PrefixCache prefixes_;
  std::vector<std::optional<Sequence>> slots_;
  std::vector<Slot> free_slots_;
  std::unordered_map<RequestId, Slot> by_id_;
  std::unordered_map<GroupId, Group> groups_;
  std::vector<Slot> residents_;
  std::vector<Slot> parked_;
  std::int32_t num_parked_without_blocks_ = 0;
  std::map<std::int64_t, Slot> waiting_;
  std::int64_t next_arrival_ = 0;
};

}  // namespace rondo::batch
