#include "kv/image_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

namespace rondo::kv {
namespace {

constexpr std::size_t kSize = 3 << 20;

TEST(ImageBufferTest, MemoryIsHandedOn) {
  const std::byte* first = nullptr;
  {
    const ImageBuffer buffer(kSize);
    first = buffer.data();
  }
  EXPECT_GE(ImageBuffer::spare_bytes(), kSize);
  const ImageBuffer smaller(kSize - 1000);
  EXPECT_EQ(smaller.data(), first);
  EXPECT_EQ(smaller.size(), kSize - 1000);
  const ImageBuffer other(kSize);
  EXPECT_NE(other.data(), first);
}

TEST(ImageBufferTest, ALittleImageTakesNoLargeMemory) {
  const std::byte* large = nullptr;
  {
    const ImageBuffer buffer(kSize);
    large = buffer.data();
  }
  EXPECT_NE(ImageBuffer(kSize / 4).data(), large);
}

TEST(ImageBufferTest, WhatIsKeptIsBounded) {
  {
    std::vector<ImageBuffer> buffers;
    for (std::size_t i = 0; i < 2 * ImageBuffer::kMostSpareBytes / (32 << 20); ++i)
      buffers.emplace_back(std::size_t{32} << 20);
  }
  EXPECT_LE(ImageBuffer::spare_bytes(), ImageBuffer::kMostSpareBytes);
  EXPECT_GT(ImageBuffer::spare_bytes(), 0U);
  ImageBuffer::free_spares();
  EXPECT_EQ(ImageBuffer::spare_bytes(), 0U);
}

TEST(ImageBufferTest, MovesAndEmptyOnesAreFine) {
  ImageBuffer buffer(kSize);
  buffer[kSize - 1] = std::byte{7};
  ImageBuffer moved = std::move(buffer);
  EXPECT_EQ(moved[kSize - 1], std::byte{7});
  moved = ImageBuffer(5);
  EXPECT_EQ(moved.size(), 5U);
  EXPECT_EQ(ImageBuffer().span().size(), 0U);
  EXPECT_EQ(ImageBuffer(0).data(), nullptr);
}

TEST(ImageBufferTest, ThreadsNeverShareMemory) {
  const auto work = [](int value) {
    for (int i = 0; i < 300; ++i) {
      ImageBuffer buffer(std::size_t{4096} + static_cast<std::size_t>(i));
      std::ranges::fill(buffer.span(), static_cast<std::byte>(value));
      std::this_thread::yield();
      const auto same = [&](std::byte b) { return b == static_cast<std::byte>(value); };
      EXPECT_TRUE(std::ranges::all_of(std::as_const(buffer).span(), same));
    }
  };
  std::thread one(work, 1), two(work, 2);
  one.join();
  two.join();
}

}  // namespace
}  // namespace rondo::kv
