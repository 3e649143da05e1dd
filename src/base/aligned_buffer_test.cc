#include "base/aligned_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace rondo {
namespace {

TEST(AlignedBufferTest, IsZeroedAndOnACacheLineAtEverySize) {
  // The largest two are above and below a whole number of huge pages.
  for (const std::size_t size : {std::size_t{1}, std::size_t{63}, std::size_t{4097},
                                 (std::size_t{4} << 20) - 8, (std::size_t{4} << 20) + 8}) {
    for (int again = 0; again < 2; ++again) {  // the second time in memory that was written before
      AlignedBuffer<std::uint8_t> buffer(size);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
      EXPECT_EQ(std::count(buffer.span().begin(), buffer.span().end(), 0), static_cast<std::ptrdiff_t>(size));
      std::fill(buffer.span().begin(), buffer.span().end(), std::uint8_t{1});
    }
  }
}

TEST(AlignedBufferTest, EmptyHasNoMemory) {
  const AlignedBuffer<float> buffer(0);
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.data(), nullptr);
}

TEST(AlignedBufferTest, HugePagesMayBeAskedForAnyRange) {
  std::vector<std::uint8_t> bytes(std::size_t{7} << 20, 7);
  prefer_huge_pages(bytes.data(), 100);                     // no whole huge page
  prefer_huge_pages(bytes.data() + 33, bytes.size() - 77);  // two or three, and parts of others
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 7), std::ssize(bytes));
}

}  // namespace
}  // namespace rondo
