// ImageBuffer: memory of images, handed on from one to the next.
#pragma once

#include <cstddef>
#include <span>

#include "base/aligned_buffer.h"

namespace rondo::kv {

/// Owns `size` bytes of any value. KV on the move takes and leaves megabytes many times a second: memory that
/// the system has to clear, and hands out page by page, cost a tenth of a rollout with many moves, so what an
/// image leaves serves the next ones, up to kMostSpareBytes in all, until free_spares(). Any thread.
/// Move-only. Throws std::bad_alloc when the memory is not to be had.
class ImageBuffer final {
 public:
  static constexpr std::size_t kMostSpareBytes = std::size_t{256} << 20;

  ImageBuffer() = default;
  explicit ImageBuffer(std::size_t size);
  ImageBuffer(ImageBuffer&& other) noexcept;
  ImageBuffer& operator=(ImageBuffer&& other) noexcept;
  ~ImageBuffer();

  std::byte* data() { return memory_.data(); }
  const std::byte* data() const { return memory_.data(); }
  std::size_t size() const { return size_; }
  std::span<std::byte> span() { return {data(), size_}; }
  std::span<const std::byte> span() const { return {data(), size_}; }
  std::byte& operator[](std::size_t i) { return memory_[i]; }

  /// Gives back what waits for an image: whoever has moved all there is to move.
  static void free_spares();
  /// Bytes that wait for an image.
  static std::size_t spare_bytes();

 private:
  AlignedBuffer<std::byte> memory_;  // at least size_
  std::size_t size_ = 0;
};

}  // namespace rondo::kv
