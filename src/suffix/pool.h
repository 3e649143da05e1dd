// Pool: spans of equal size from pages, named by small integers; nothing moves when it grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/check.h"

namespace rondo::suffix {

/// Hands out spans of 2^log2_span items. Spans keep their address until released; their content is the last
/// holder's, so the caller assigns all of it. One owner thread; concurrent reads are fine between changes.
template <class T>
class Pool final {
 public:
  explicit Pool(std::uint32_t log2_span = 0) : log2_span_(log2_span) { RONDO_CHECK_LE(log2_span, kLog2Page); }

  /// A span that nobody holds.
  std::uint32_t allocate() {
    if (!free_.empty()) {
      const std::uint32_t id = free_.back();
      free_.pop_back();
      return id;
    }
    if (size_ == pages_.size() << (kLog2Page - log2_span_)) pages_.push_back(std::make_unique<T[]>(kPage));
    return size_++;
  }
  void release(std::uint32_t id) { free_.push_back(id); }

  /// The first item of a span.
  T* at(std::uint32_t id) { return page_of(id) + offset_of(id); }
  const T* at(std::uint32_t id) const { return page_of(id) + offset_of(id); }

  /// Spans ever handed out: ids are below this.
  std::uint32_t size() const { return size_; }
  std::uint32_t num_used() const { return size_ - static_cast<std::uint32_t>(free_.size()); }
  /// Memory held, free spans included.
  std::size_t bytes() const {
    return pages_.size() * kPage * sizeof(T) + pages_.capacity() * sizeof(void*) +
           free_.capacity() * sizeof(std::uint32_t);
  }
  /// What one more page adds to bytes(), the table of pages and the free list growing included.
  std::size_t page_bytes() const {
    return kPage * sizeof(T) + (pages_.capacity() + 1) * sizeof(void*) +
           (free_.capacity() + 1) * sizeof(std::uint32_t);
  }
  const std::vector<std::uint32_t>& free_ids() const { return free_; }

 private:
  static constexpr std::uint32_t kLog2Page = 8;
  static constexpr std::size_t kPage = std::size_t{1} << kLog2Page;

  T* page_of(std::uint32_t id) const { return pages_[id >> (kLog2Page - log2_span_)].get(); }
  std::size_t offset_of(std::uint32_t id) const {
    return (static_cast<std::size_t>(id) << log2_span_) & (kPage - 1);
  }

  std::uint32_t log2_span_;
  std::uint32_t size_ = 0;
  std::vector<std::unique_ptr<T[]>> pages_;
  std::vector<std::uint32_t> free_;  // a stack
};

}  // namespace rondo::suffix
