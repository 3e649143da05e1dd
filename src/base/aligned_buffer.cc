#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>

namespace rondo {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

void* allocate_aligned(std::size_t bytes) {
  const std::size_t size = round_up(bytes, kCacheLine);
  void* data = nullptr;
  if (::posix_memalign(&data, size >= kHugePage ? kHugePage : kCacheLine, size) != 0) throw std::bad_alloc();
  if (size >= kHugePage) prefer_huge_pages(data, size);
  std::memset(data, 0, size);
  return data;
}

void prefer_huge_pages(void* data, std::size_t bytes) {
  const auto begin = round_up(reinterpret_cast<std::uintptr_t>(data), kHugePage);
  const auto end = (reinterpret_cast<std::uintptr_t>(data) + bytes) / kHugePage * kHugePage;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace rondo
