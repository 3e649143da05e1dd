#include "train/buffer_pool.h"

#include <algorithm>
#include <utility>

namespace rondo::train {

BufferPool::Handle::Handle(Handle&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), buffer_(std::move(other.buffer_)) {}

BufferPool::Handle& BufferPool::Handle::operator=(Handle&& other) noexcept {
  if (this == &other) return *this;
  release();
  pool_ = std::exchange(other.pool_, nullptr);
  buffer_ = std::move(other.buffer_);
  return *this;
}

void BufferPool::Handle::release() {
  if (pool_ != nullptr) std::exchange(pool_, nullptr)->take_back(std::move(buffer_));
}

BufferPool::Handle BufferPool::acquire(std::int64_t size) {
  const auto wanted = static_cast<std::size_t>(size);
  auto found = free_.lower_bound(wanted);
  AlignedBuffer<float> buffer;
  // A buffer more than twice too large is better kept for a larger request.
  if (found != free_.end() && found->first <= 2 * wanted + 1024) {
    buffer = std::move(found->second);
    free_.erase(found);
  } else {
    buffer = AlignedBuffer<float>(wanted);
  }
  in_use_ += buffer.bytes();
  peak_ = std::max(peak_, in_use_);
  return Handle(this, std::move(buffer));
}

void BufferPool::take_back(AlignedBuffer<float> buffer) {
  in_use_ -= buffer.bytes();
  const std::size_t size = buffer.size();
  free_.emplace(size, std::move(buffer));
}

}  // namespace rondo::train
