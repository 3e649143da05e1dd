#include "timeline/recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace rondo::timeline {
namespace {

Chunk chunk(int request, int group, int instance, std::int64_t begin, std::int64_t end) {
  return {.request = RequestId(request),
          .group = GroupId(group),
          .instance = InstanceId(instance),
          .begin_ns = begin,
          .end_ns = end,
          .end_tokens = 7};
}

TEST(RecorderTest, CollectsChunksFinishesAndQuantities) {
  Recorder recorder("seer", 100);
  const auto running = recorder.add_counter("running requests");
  recorder.set(running, InstanceId(1), 100, 2.0);
  recorder.chunk(chunk(0, 0, 0, 100, 1'200));
  Chunk last = chunk(0, 0, 1, 1'200, 2'100);
  last.migrated = last.finished = true;
  recorder.chunk(last);
  const Timeline t = recorder.finish(2'000);
  EXPECT_EQ(t.name, "seer");
  EXPECT_EQ(t.num_instances, 2);
  EXPECT_EQ(t.end_ns, 2'100);  // of the last chunk
  EXPECT_EQ(t.num_chunks, 2);
  EXPECT_EQ(t.num_migrations, 1);
  ASSERT_EQ(t.finishes.size(), 1U);
  EXPECT_EQ(t.finishes[0].time_ns, 2'100);
  EXPECT_EQ(t.finishes[0].tokens, 7);
  ASSERT_EQ(t.counters.size(), 2U);
  EXPECT_EQ(t.counters[1].means, (std::vector<double>{2.0, 2.0}));
  EXPECT_EQ(t.counters[0].means, (std::vector<double>{0.0, 0.0}));
}

TEST(RecorderTest, KeepsWholeGroupsWithinItsLimit) {
  constexpr int kGroups = 1'000;
  constexpr int kChunks = 8;
  Recorder recorder("many", 0, {.max_chunks = 700});
  for (int c = 0; c < kChunks; ++c)
    for (int g = 0; g < kGroups; ++g) {
      Chunk next = chunk(g, g * 8, 0, c * 1'000 + g, c * 1'000 + g + 1);
      next.finished = c == kChunks - 1;
      recorder.chunk(next);
    }
  const Timeline t = recorder.finish(0);
  EXPECT_LE(t.chunks.size(), 700U);
  EXPECT_GE(t.chunks.size(), 200U);  // halved no more often than need be
  EXPECT_EQ(t.num_chunks, kGroups * kChunks);
  EXPECT_EQ(t.finishes.size(), std::size_t{kGroups});
  std::multiset<GroupId> kept;
  for (const Chunk& c : t.chunks) kept.insert(c.group);
  for (const GroupId group : kept) EXPECT_EQ(kept.count(group), std::size_t{kChunks});
}

TEST(RecorderTest, TailIsTheLastTenthOfTheResponses) {
  const std::vector<std::int64_t> twenty = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                            11, 12, 13, 14, 15, 16, 17, 18, 30, 90};
  EXPECT_EQ(tail_begin(twenty, 0), 18);
  EXPECT_EQ(tail_begin(std::vector<std::int64_t>{4, 9}, 1), 4);
  EXPECT_EQ(tail_begin(std::vector<std::int64_t>{4}, 1), 1);
  EXPECT_EQ(tail_begin(std::vector<std::int64_t>{}, 1), 1);
}

}  // namespace
}  // namespace rondo::timeline
