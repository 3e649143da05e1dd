#include "kv/image_buffer.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace rondo::kv {
namespace {

/// Memory without an image.
class Spares final {
 public:
  // The least that holds `size` and is not much larger; empty if there is none.
  AlignedBuffer<std::byte> take(std::size_t size) {
    const std::lock_guard lock(mutex_);
    auto best = buffers_.end();
    for (auto it = buffers_.begin(); it != buffers_.end(); ++it) {
      const bool fits = it->size() >= size && it->size() / 2 <= size;
      if (fits && (best == buffers_.end() || it->size() < best->size())) best = it;
    }
    if (best == buffers_.end()) return {};
    AlignedBuffer<std::byte> found = std::move(*best);
    buffers_.erase(best);
    bytes_ -= found.size();
    return found;
  }

  // The oldest make room; what is larger than all of it is not kept.
  void give(AlignedBuffer<std::byte> memory) {
    if (memory.size() > ImageBuffer::kMostSpareBytes) return;
    std::vector<AlignedBuffer<std::byte>> dropped;  // freed behind the lock
    const std::lock_guard lock(mutex_);
    bytes_ += memory.size();
    buffers_.push_back(std::move(memory));
    while (bytes_ > ImageBuffer::kMostSpareBytes) {
      bytes_ -= buffers_.front().size();
      dropped.push_back(std::move(buffers_.front()));
      buffers_.erase(buffers_.begin());
    }
  }

  void clear() {
    std::vector<AlignedBuffer<std::byte>> dropped;  // freed behind the lock
    const std::lock_guard lock(mutex_);
    dropped.swap(buffers_);
    bytes_ = 0;
  }

  std::size_t bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  std::mutex mutex_;
  std::vector<AlignedBuffer<std::byte>> buffers_;  // oldest first
  std::size_t bytes_ = 0;
};

// Never destroyed: images may outlive whatever is destroyed at the end of the program.
Spares& spares() {
  static Spares* const all = new Spares();
  return *all;
}

}  // namespace

ImageBuffer::ImageBuffer(std::size_t size) : size_(size) {
  if (size == 0) return;
  memory_ = spares().take(size);
  if (memory_.empty()) memory_ = AlignedBuffer<std::byte>(size);
}

ImageBuffer::ImageBuffer(ImageBuffer&& other) noexcept
    : memory_(std::move(other.memory_)), size_(std::exchange(other.size_, 0)) {}

ImageBuffer& ImageBuffer::operator=(ImageBuffer&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(size_, other.size_);
  return *this;
}

ImageBuffer::~ImageBuffer() {
  if (size_ > 0) spares().give(std::move(memory_));
}

void ImageBuffer::free_spares() {
  spares().clear();
}

std::size_t ImageBuffer::spare_bytes() {
  return spares().bytes();
}

}  // namespace rondo::kv
