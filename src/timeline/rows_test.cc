#include "timeline/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace rondo::timeline {
namespace {

Chunk chunk(int request, int instance, std::int64_t begin, std::int64_t end) {
  return {.request = RequestId(request),
          .group = GroupId(0),
          .instance = InstanceId(instance),
          .begin_ns = begin,
          .end_ns = end};
}

TEST(RowsTest, ChunksAtOneTimeStandAboveEachOther) {
  const std::vector<Chunk> chunks = {chunk(0, 0, 0, 10), chunk(1, 0, 5, 15), chunk(2, 1, 5, 15),
                                     chunk(3, 0, 10, 20)};
  const Rows rows = assign_rows(chunks, 2);
  EXPECT_EQ(rows.of_chunk, (std::vector<std::int32_t>{0, 1, 0, 0}));
  EXPECT_EQ(rows.count, (std::vector<std::int32_t>{2, 1}));
}

TEST(RowsTest, RequestComesBackToItsRow) {
  const std::vector<Chunk> chunks = {chunk(0, 0, 0, 10), chunk(1, 0, 0, 10), chunk(1, 0, 10, 20)};
  EXPECT_EQ(assign_rows(chunks, 1).of_chunk, (std::vector<std::int32_t>{0, 1, 1}));
}

// The naive count of rows is the most chunks at any one time.
TEST(RowsTest, AsFewRowsAsOverlapsAllow) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    std::vector<Chunk> chunks;
    for (int i = 0; i < 60; ++i) {
      const auto begin = static_cast<std::int64_t>(random() % 100);
      chunks.push_back(chunk(i, 0, begin, begin + 1 + static_cast<std::int64_t>(random() % 20)));
    }
    const Rows rows = assign_rows(chunks, 1);
    std::int64_t most = 0;
    for (std::int64_t t = 0; t < 130; ++t)
      most = std::max<std::int64_t>(most, std::ranges::count_if(chunks, [t](const Chunk& c) {
                                      return c.begin_ns <= t && t < c.end_ns;
                                    }));
    EXPECT_EQ(rows.count[0], most);
    for (std::size_t a = 0; a < chunks.size(); ++a)
      for (std::size_t b = 0; b < a; ++b) {
        const bool overlap = chunks[a].begin_ns < chunks[b].end_ns && chunks[b].begin_ns < chunks[a].end_ns;
        EXPECT_FALSE(overlap && rows.of_chunk[a] == rows.of_chunk[b]);
      }
  }
}

}  // namespace
}  // namespace rondo::timeline
