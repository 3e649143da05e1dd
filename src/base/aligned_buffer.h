// AlignedBuffer<T>: owned, 64-byte aligned, fixed-size storage for kernels.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

namespace rondo {

/// Owns `size` elements of a trivial type, zero-initialised, aligned to a cache line. Move-only.
/// Throws std::bad_alloc when the memory is not to be had.
template <class T>
class AlignedBuffer final {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  static constexpr std::size_t kAlignment = 64;

  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size) : data_(allocate(size)), size_(size) {}

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

  static T* allocate(std::size_t size) {
    if (size == 0) return nullptr;
    const std::size_t bytes = (size * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    void* p = std::aligned_alloc(kAlignment, bytes);
    if (p == nullptr) throw std::bad_alloc();
    std::memset(p, 0, bytes);
    return static_cast<T*>(p);
  }

  std::unique_ptr<T[], Free> data_;
  std::size_t size_ = 0;
};

}  // namespace rondo
