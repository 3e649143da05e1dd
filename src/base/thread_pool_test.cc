#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

namespace rondo {
namespace {

TEST(ThreadPoolTest, RunsEachIndexOncePerCall) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    std::vector<int> counts(static_cast<std::size_t>(threads), 0);
    for (int round = 0; round < 500; ++round) pool.run([&](int i) { ++counts[static_cast<std::size_t>(i)]; });
    for (int count : counts) EXPECT_EQ(count, 500);
  }
}

TEST(ThreadPoolTest, ParallelForCoversTheRangeInGrains) {
  for (int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    for (std::int64_t count : {0, 1, 15, 16, 17, 160, 1001}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
      pool.parallel_for(count, 16, [&](std::int64_t begin, std::int64_t end) {
        EXPECT_EQ(begin % 16, 0);
        for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
      });
      for (const auto& s : seen) EXPECT_EQ(s.load(), 1);
    }
  }
}

TEST(ThreadPoolTest, SeesWritesOfTheWorkers) {
  ThreadPool pool(2);
  std::vector<std::int64_t> sums(2);
  for (std::int64_t round = 0; round < 2000; ++round) {
    pool.run([&](int i) { sums[static_cast<std::size_t>(i)] = round + i; });
    ASSERT_EQ(std::accumulate(sums.begin(), sums.end(), std::int64_t{0}), 2 * round + 1);
  }
}

}  // namespace
}  // namespace rondo
