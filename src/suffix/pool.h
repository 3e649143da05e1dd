// Pool: spans of equal size from pages, named by small integers; nothing moves when it grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "base/check.h"

namespace rondo::suffix {

/// Hands out spans of 2^log2_span items. Spans keep their address until released; what is in a new one is
/// unspecified, so the caller assigns all of it. Releasing never takes memory. One owner thread; concurrent
/// reads are fine between changes.
template <class T>
class Pool final {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) >= sizeof(std::uint32_t));

 public:
  explicit Pool(std::uint32_t log2_span = 0) : log2_span_(log2_span) { RONDO_CHECK_LE(log2_span, kLog2Page); }

  /// A span that nobody holds.
  std::uint32_t allocate() {
    ++num_used_;
    if (first_free_ != kNone) {
      const std::uint32_t id = first_free_;
      first_free_ = next_free(id);
      return id;
    }
    if (size_ == capacity()) pages_.push_back(std::make_unique<T[]>(kPage));
    return size_++;
  }
  void release(std::uint32_t id) {
    --num_used_;
    std::memcpy(static_cast<void*>(at(id)), &first_free_, sizeof first_free_);
    first_free_ = id;
  }

  /// The first item of a span.
  T* at(std::uint32_t id) { return page_of(id) + offset_of(id); }
  const T* at(std::uint32_t id) const { return page_of(id) + offset_of(id); }

  std::uint32_t num_used() const { return num_used_; }
  /// How many can be allocated without taking memory.
  std::size_t num_free() const { return capacity() - num_used_; }
  /// Of every id ever handed out, whether it is in use.
  std::vector<bool> used() const {
    std::vector<bool> result(size_, true);
    for (std::uint32_t id = first_free_; id != kNone; id = next_free(id)) {
      RONDO_CHECK(result[id]);
      result[id] = false;
    }
    return result;
  }

  /// Memory held, free spans included.
  std::size_t bytes() const { return pages_.size() * kPage * sizeof(T) + pages_.capacity() * sizeof(void*); }
  /// A bound on what bytes() grows by while `count` spans are allocated.
  std::size_t growth_bound(std::size_t count) const {
    const std::size_t pages = (count << log2_span_) / kPage + 1;
    return count <= num_free() ? 0 : pages * kPage * sizeof(T) + (pages_.capacity() + pages) * sizeof(void*);
  }

 private:
  static constexpr std::uint32_t kLog2Page = 8;
  static constexpr std::size_t kPage = std::size_t{1} << kLog2Page;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  std::size_t capacity() const { return pages_.size() << (kLog2Page - log2_span_); }
  T* page_of(std::uint32_t id) const { return pages_[id >> (kLog2Page - log2_span_)].get(); }
  std::size_t offset_of(std::uint32_t id) const {
    return (static_cast<std::size_t>(id) << log2_span_) & (kPage - 1);
  }
  // A free span begins with the id of the next.
  std::uint32_t next_free(std::uint32_t id) const {
    std::uint32_t next = 0;
    std::memcpy(&next, static_cast<const void*>(at(id)), sizeof next);
    return next;
  }

  std::uint32_t log2_span_;
  std::uint32_t size_ = 0;  // ids are below this
  std::uint32_t num_used_ = 0;
  std::uint32_t first_free_ = kNone;
  std::vector<std::unique_ptr<T[]>> pages_;
};

}  // namespace rondo::suffix
