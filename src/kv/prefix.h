// How the samples of a group share the KV of their prompt, and the cache that bridges a gap between samples.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/id.h"
#include "kv/block_table.h"

namespace rondo::kv {

/// The part of a prompt's KV that a sibling takes over: all but the last position, which the sibling computes
/// itself because it needs the logits there. Full blocks are shared; the tail is copied, since both sides go
/// on writing behind it.
struct SharedPrefix final {
  explicit constexpr SharedPrefix(std::int32_t prompt_tokens)
      : num_tokens(prompt_tokens - 1),
        full_blocks(num_tokens / kBlockTokens),
        tail_slots(num_tokens % kBlockTokens) {}

  std::int32_t num_blocks() const { return full_blocks + (tail_slots > 0 ? 1 : 0); }

  std::int32_t num_tokens;
  std::int32_t full_blocks;
  std::int32_t tail_slots;
};

/// Keeps the prompt blocks of groups none of whose samples holds them any more, for samples to come.
///
/// Does not decide what to keep or to drop, and knows neither tokens nor positions: a key is a group, whose
/// prompt is fixed. Its entries must be taken when the weights change. One owner thread.
class PrefixCache final {
 public:
  struct Entry {
    GroupId group;
    BlockTable table;
  };

  /// Oldest first.
  std::span<const Entry> entries() const { return entries_; }
  /// The kept blocks of `group`, or null. Valid until the cache changes.
  const BlockTable* find(GroupId group) const;

  /// Keeps `table`; the group must not have an entry.
  void put(GroupId group, BlockTable table);
  /// Hands the blocks of an existing entry over.
  BlockTable take(GroupId group);

 private:
  std::vector<Entry> entries_;  // few: a group is here only while nothing of it is on this instance
};

}  // namespace rondo::kv
