// BlockTable: the blocks of one sequence, in position order, as an owning handle.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/id.h"
#include "kv/block_pool.h"

namespace rondo::kv {

/// Holds one reference to each of its blocks and releases them when it ends. Move-only; the pool must outlive
/// it. A moved-from table is empty and usable.
///
/// Does not know how many positions are filled. By convention a block in two tables is full and never written
/// again; only the last block of a table is written, by the sequence that owns the table. One owner thread.
class BlockTable final {
 public:
  explicit BlockTable(BlockPool& pool) : pool_(&pool) {}
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&& other) noexcept;
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;
  ~BlockTable() { truncate(0); }

  std::span<const BlockId> blocks() const { return blocks_; }
  std::int32_t size() const { return static_cast<std::int32_t>(blocks_.size()); }
  bool empty() const { return blocks_.empty(); }
  void reserve(std::int64_t num_blocks) { blocks_.reserve(static_cast<std::size_t>(num_blocks)); }

  /// Appends free blocks, claiming them.
  void acquire(std::span<const BlockId> blocks);
  /// Appends blocks that others hold, as a further holder.
  void share(std::span<const BlockId> blocks);
  /// Releases all but the first `num_blocks`.
  void truncate(std::int32_t num_blocks);

 private:
  BlockPool* pool_;
  std::vector<BlockId> blocks_;
};

}  // namespace rondo::kv
