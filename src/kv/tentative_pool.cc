#include "kv/tentative_pool.h"

#include "base/check.h"

namespace rondo::kv {

void TentativePool::reset(const BlockPool& pool) {
  for (const BlockId block : touched_) released_[static_cast<std::size_t>(block.value())] = 0;
  touched_.clear();
  freed_.clear();
  num_taken_ = 0;
  pool_ = &pool;
  released_.resize(static_cast<std::size_t>(pool.num_blocks()), 0);
}

std::int32_t TentativePool::num_free() const {
  return pool_->num_free() - num_taken_ + static_cast<std::int32_t>(freed_.size());
}

std::optional<BlockId> TentativePool::allocate() {
  if (num_taken_ < pool_->num_free()) return pool_->peek_free(num_taken_++);
  if (freed_.empty()) return std::nullopt;
  const BlockId block = freed_.back();
  freed_.pop_back();
  return block;
}

void TentativePool::release(BlockId block) {
  const std::int32_t holders = pool_->ref_count(block);
  std::int32_t& released = released_[static_cast<std::size_t>(block.value())];
  RONDO_CHECK_LT(released, holders);
  if (released++ == 0) touched_.push_back(block);
  if (released == holders) freed_.push_back(block);
}

}  // namespace rondo::kv
