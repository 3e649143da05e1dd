// AlignedBuffer<T>: owned, 64-byte aligned, fixed-size storage for kernels.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <type_traits>

namespace rondo {

/// Zeroed memory aligned to a cache line, for std::free. Whole 2 MiB of it lie on huge pages where the system
/// has them: a pass over weights or moments touches so many 4 KiB pages that the address translation would be
/// slower than the memory. Throws std::bad_alloc when the memory is not to be had.
void* allocate_aligned(std::size_t bytes);
/// Asks for huge pages in [data, data + bytes). Only speed depends on it.
void prefer_huge_pages(void* data, std::size_t bytes);

/// Owns `size` elements of a trivial type, zero-initialised, from allocate_aligned(). Move-only.
/// Throws std::bad_alloc when the memory is not to be had.
template <class T>
class AlignedBuffer final {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size)
      : data_(size == 0 ? nullptr : static_cast<T*>(allocate_aligned(size * sizeof(T)))), size_(size) {}

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return size_ * sizeof(T); }
  bool empty() const { return size_ == 0; }
  T& operator[](std::size_t i) { return data_.get()[i]; }
  const T& operator[](std::size_t i) const { return data_.get()[i]; }
  std::span<T> span() { return {data(), size_}; }
  std::span<const T> span() const { return {data(), size_}; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };

  std::unique_ptr<T[], Free> data_;
  std::size_t size_ = 0;
};

}  // namespace rondo
