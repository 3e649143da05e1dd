#include "kv/prefix.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>

namespace rondo::kv {
namespace {

TEST(PrefixTest, AllButTheLastPositionIsShared) {
  struct Case {
    std::int32_t prompt, full, tail, blocks;
  };
  for (const Case& c : {Case{1, 0, 0, 0}, Case{2, 0, 1, 1}, Case{64, 0, 63, 1}, Case{65, 1, 0, 1},
                        Case{66, 1, 1, 2}, Case{129, 2, 0, 2}}) {
    const SharedPrefix prefix(c.prompt);
    EXPECT_EQ(prefix.num_tokens, c.prompt - 1);
    EXPECT_EQ(prefix.full_blocks, c.full) << c.prompt;
    EXPECT_EQ(prefix.tail_slots, c.tail) << c.prompt;
    EXPECT_EQ(prefix.num_blocks(), c.blocks) << c.prompt;
  }
}

TEST(PrefixTest, CacheKeepsBlocksAliveUntilTaken) {
  BlockPool pool(3);
  PrefixCache cache;
  for (int i = 0; i < 2; ++i) {
    BlockTable table(pool);
    table.acquire(std::array{BlockId(i)});
    cache.put(GroupId(i), std::move(table));
  }
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(cache.find(GroupId(2)), nullptr);
  ASSERT_NE(cache.find(GroupId(1)), nullptr);
  EXPECT_EQ(cache.entries()[1].group, GroupId(1));
  {
    const BlockTable taken = cache.take(GroupId(0));
    EXPECT_EQ(taken.blocks()[0], BlockId(0));
    EXPECT_EQ(cache.find(GroupId(0)), nullptr);
    EXPECT_EQ(pool.num_free(), 1);
  }
  EXPECT_EQ(pool.num_free(), 2);
  cache.take(GroupId(1));
  EXPECT_EQ(pool.num_free(), 3);
}

}  // namespace
}  // namespace rondo::kv
