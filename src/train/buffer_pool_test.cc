#include "train/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

namespace rondo::train {
namespace {

TEST(BufferPoolTest, ReusesABufferOfTheSameSize) {
  BufferPool pool;
  BufferPool::Handle a = pool.acquire(1000);
  const float* data = a.data();
  a.release();
  EXPECT_EQ(pool.acquire(1000).data(), data);
  EXPECT_EQ(pool.acquire(900).data(), data);
}

TEST(BufferPoolTest, TwoHandlesNeverShareABuffer) {
  BufferPool pool;
  pool.acquire(1000).release();
  BufferPool::Handle a = pool.acquire(1000), b = pool.acquire(1000);
  EXPECT_NE(a.data(), b.data());
  a.data()[999] = 1;
  b.data()[999] = 2;
  EXPECT_EQ(a.data()[999], 1);
}

TEST(BufferPoolTest, GivesAtLeastTheSizeAskedForAndNotFarMore) {
  BufferPool pool;
  pool.acquire(100'000).release();
  EXPECT_LT(pool.acquire(1000).size(), 100'000U);
  pool.acquire(500).release();
  EXPECT_GE(pool.acquire(501).size(), 501U);
}

TEST(BufferPoolTest, CountsWhatIsOutAndItsPeak) {
  BufferPool pool;
  {
    const BufferPool::Handle a = pool.acquire(1000);
    EXPECT_EQ(pool.bytes_in_use(), 4000U);
    const BufferPool::Handle b = pool.acquire(5000);
    EXPECT_EQ(pool.bytes_in_use(), 24'000U);
  }
  EXPECT_EQ(pool.bytes_in_use(), 0U);
  EXPECT_EQ(pool.peak_bytes(), 24'000U);
  const BufferPool::Handle c = pool.acquire(1000);
  EXPECT_EQ(pool.peak_bytes(), 24'000U);
}

TEST(BufferPoolTest, MovingAHandleReturnsWhatItHeldOnce) {
  BufferPool pool;
  BufferPool::Handle a = pool.acquire(100), b = pool.acquire(200);
  const float* second = b.data();
  a = std::move(b);
  EXPECT_EQ(a.data(), second);
  EXPECT_EQ(pool.bytes_in_use(), 800U);
  BufferPool::Handle c(std::move(a));
  c.release();
  c.release();
  EXPECT_EQ(pool.bytes_in_use(), 0U);
}

TEST(BufferPoolTest, TrimFreesOnlyWhatIsNotHandedOut) {
  BufferPool pool;
  BufferPool::Handle kept = pool.acquire(64);
  kept.data()[0] = 5;
  pool.acquire(64).release();
  pool.trim();
  EXPECT_EQ(kept.data()[0], 5);
  EXPECT_EQ(pool.bytes_in_use(), 256U);
}

}  // namespace
}  // namespace rondo::train
