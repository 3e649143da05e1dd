// BlockPool: which KV blocks are free and how many holders each used one has. Integers only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/id.h"

namespace rondo::kv {

/// Positions per block. Equals the attention block of the numbers contract, so it is a constant: position p
/// of a sequence lives in block_table[p / kBlockTokens], slot p % kBlockTokens.
inline constexpr std::int32_t kBlockTokens = 64;

/// Blocks that hold `num_tokens` positions.
constexpr std::int64_t blocks_for(std::int64_t num_tokens) {
  return (num_tokens + kBlockTokens - 1) / kBlockTokens;
}

/// "Copy the first `num_slots` slots of `from` to `to`", in every layer, K and V.
struct BlockCopy {
  BlockId from;
  BlockId to;
  std::int32_t num_slots = 0;
  bool operator==(const BlockCopy&) const = default;
};

/// Counts the holders of each of a fixed number of blocks; every operation is O(1).
///
/// Does not own the memory of the blocks, nor know who holds them: BlockTable does that. One owner thread.
/// "No free block" is data; releasing a free block or claiming a used one is a bug and aborts.
class BlockPool final {
 public:
  /// All blocks are free. num_blocks >= 0.
  explicit BlockPool(std::int32_t num_blocks);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  std::int32_t num_blocks() const { return static_cast<std::int32_t>(ref_counts_.size()); }
  std::int32_t num_free() const { return static_cast<std::int32_t>(free_.size()); }
  /// Holders of `block`; 0 when it is free.
  std::int32_t ref_count(BlockId block) const;
  /// The block that the (i+1)-th allocate() from now would give, 0 <= i < num_free().
  BlockId peek_free(std::int32_t i) const;

  /// Claims any free block for one holder; nullopt when there is none.
  std::optional<BlockId> allocate();
  /// Claims this free block for one holder.
  void acquire(BlockId block);
  /// Adds a holder to a used block.
  void retain(BlockId block);
  /// Drops a holder; the last one frees the block.
  void release(BlockId block);

  /// Aborts unless the free list and the counts agree. O(num_blocks).
  void check_invariants() const;

 private:
  static constexpr std::int32_t kNotFree = -1;
  std::size_t index(BlockId block) const;

  std::vector<std::int32_t> ref_counts_;
  std::vector<BlockId> free_;             // a stack
  std::vector<std::int32_t> place_free_;  // of a block in free_, or kNotFree
};

}  // namespace rondo::kv
