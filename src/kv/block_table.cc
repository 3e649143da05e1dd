#include "kv/block_table.h"

#include <utility>

#include "base/check.h"

namespace rondo::kv {

BlockTable::BlockTable(BlockTable&& other) noexcept
    : pool_(other.pool_), blocks_(std::exchange(other.blocks_, {})) {}

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  if (this == &other) return *this;
  truncate(0);
  pool_ = other.pool_;
  blocks_ = std::exchange(other.blocks_, {});
  return *this;
}

void BlockTable::acquire(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    pool_->acquire(block);
    blocks_.push_back(block);
  }
}

void BlockTable::share(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    pool_->retain(block);
    blocks_.push_back(block);
  }
}

void BlockTable::truncate(std::int32_t num_blocks) {
  RONDO_CHECK_GE(num_blocks, 0);
  while (size() > num_blocks) {
    pool_->release(blocks_.back());
    blocks_.pop_back();
  }
}

}  // namespace rondo::kv
