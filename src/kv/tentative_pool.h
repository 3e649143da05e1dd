// TentativePool: allocate and release on paper, so that a plan can be made without touching the pool.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/id.h"
#include "kv/block_pool.h"

namespace rondo::kv {

/// Answers which blocks would be free after some releases and allocations on a BlockPool.
///
/// Does not change the pool, and is valid until the pool changes. Carrying it out is the caller's work: all
/// releases first, then BlockPool::acquire of each allocated id. Reused between plans without allocation.
/// One owner thread.
class TentativePool final {
 public:
  /// Starts over from the present state of `pool`, which must outlive the use of this object.
  void reset(const BlockPool& pool);

  std::int32_t num_free() const;
  /// A block that would be free; nullopt when there is none.
  std::optional<BlockId> allocate();
  /// Drops one of the holders that the pool counts now; the last one frees the block.
  void release(BlockId block);

 private:
  const BlockPool* pool_ = nullptr;
  std::int32_t num_taken_ = 0;          // from the pool's own free blocks
  std::vector<BlockId> freed_;          // by releases, not yet allocated again
  std::vector<BlockId> touched_;        // blocks with an entry in released_
  std::vector<std::int32_t> released_;  // per block: holders dropped
};

}  // namespace rondo::kv
