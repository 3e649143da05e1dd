#include "kv/block_pool.h"

#include "base/check.h"

namespace rondo::kv {

BlockPool::BlockPool(std::int32_t num_blocks) {
  RONDO_CHECK_GE(num_blocks, 0);
  const auto size = static_cast<std::size_t>(num_blocks);
  ref_counts_.assign(size, 0);
  place_free_.resize(size);
  free_.reserve(size);
  for (std::int32_t place = 0; place < num_blocks; ++place) {
    const BlockId block(num_blocks - 1 - place);  // the top of the stack is block 0
    place_free_[index(block)] = place;
    free_.push_back(block);
  }
}

std::size_t BlockPool::index(BlockId block) const {
  RONDO_CHECK(block.value() >= 0 && block.value() < num_blocks());
  return static_cast<std::size_t>(block.value());
}

std::int32_t BlockPool::ref_count(BlockId block) const {
  return ref_counts_[index(block)];
}

BlockId BlockPool::peek_free(std::int32_t i) const {
  RONDO_CHECK(i >= 0 && i < num_free());
  return free_[free_.size() - 1 - static_cast<std::size_t>(i)];
}

std::optional<BlockId> BlockPool::allocate() {
  if (free_.empty()) return std::nullopt;
  const BlockId block = free_.back();
  acquire(block);
  return block;
}

void BlockPool::acquire(BlockId block) {
  std::int32_t& place = place_free_[index(block)];
  RONDO_CHECK_NE(place, kNotFree);
  const BlockId last = free_.back();
  free_[static_cast<std::size_t>(place)] = last;
  place_free_[index(last)] = place;
  free_.pop_back();
  place = kNotFree;
  ref_counts_[index(block)] = 1;
}

void BlockPool::retain(BlockId block) {
  std::int32_t& count = ref_counts_[index(block)];
  RONDO_CHECK_GT(count, 0);
  ++count;
}

void BlockPool::release(BlockId block) {
  std::int32_t& count = ref_counts_[index(block)];
  RONDO_CHECK_GT(count, 0);
  if (--count > 0) return;
  place_free_[index(block)] = num_free();
  free_.push_back(block);
}

void BlockPool::check_invariants() const {
  std::int32_t num_unused = 0;
  for (std::int32_t i = 0; i < num_blocks(); ++i) {
    const BlockId block(i);
    RONDO_CHECK_GE(ref_count(block), 0);
    const std::int32_t place = place_free_[index(block)];
    RONDO_CHECK_EQ(ref_count(block) == 0, place != kNotFree);
    if (place == kNotFree) continue;
    ++num_unused;
    RONDO_CHECK_LT(place, num_free());
    RONDO_CHECK_EQ(free_[static_cast<std::size_t>(place)], block);
  }
  RONDO_CHECK_EQ(num_unused, num_free());
}

}  // namespace rondo::kv
