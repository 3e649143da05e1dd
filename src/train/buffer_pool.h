// BufferPool: reuses fp32 buffers between operations, so that a step allocates only the first time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"

namespace rondo::train {

/// Hands out uninitialised fp32 buffers and takes them back. Counts what is out and its peak. One owner
/// thread; handles must not outlive the pool.
class BufferPool final {
 public:
  class Handle final {
   public:
    Handle() = default;
    Handle(Handle&& other) noexcept;
    Handle& operator=(Handle&& other) noexcept;
    ~Handle() { release(); }

    float* data() { return buffer_.data(); }
    const float* data() const { return buffer_.data(); }
    std::size_t size() const { return buffer_.size(); }
    bool empty() const { return buffer_.empty(); }
    /// Gives the buffer back early.
    void release();

   private:
    friend class BufferPool;
    Handle(BufferPool* pool, AlignedBuffer<float> buffer) : pool_(pool), buffer_(std::move(buffer)) {}
    BufferPool* pool_ = nullptr;
    AlignedBuffer<float> buffer_;
  };

  /// A buffer of at least `size` values with arbitrary contents.
  Handle acquire(std::int64_t size);

  std::size_t bytes_in_use() const { return in_use_; }
  std::size_t peak_bytes() const { return peak_; }
  /// Frees the buffers that are not handed out.
  void trim() { free_.clear(); }

 private:
  void take_back(AlignedBuffer<float> buffer);

  std::multimap<std::size_t, AlignedBuffer<float>> free_;  // by size
  std::size_t in_use_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace rondo::train
