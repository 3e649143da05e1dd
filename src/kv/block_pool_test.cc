#include "kv/block_pool.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <vector>

namespace rondo::kv {
namespace {

TEST(BlockPoolTest, BlocksForRoundsUp) {
  EXPECT_EQ(blocks_for(0), 0);
  EXPECT_EQ(blocks_for(1), 1);
  EXPECT_EQ(blocks_for(64), 1);
  EXPECT_EQ(blocks_for(65), 2);
}

TEST(BlockPoolTest, AllocatesEachBlockOnceThenNone) {
  BlockPool pool(3);
  EXPECT_EQ(pool.allocate(), BlockId(0));
  EXPECT_EQ(pool.allocate(), BlockId(1));
  EXPECT_EQ(pool.allocate(), BlockId(2));
  EXPECT_EQ(pool.allocate(), std::nullopt);
  pool.release(BlockId(1));
  EXPECT_EQ(pool.allocate(), BlockId(1));
}

TEST(BlockPoolTest, LastHolderFrees) {
  BlockPool pool(1);
  pool.acquire(BlockId(0));
  pool.retain(BlockId(0));
  pool.release(BlockId(0));
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.ref_count(BlockId(0)), 1);
  pool.release(BlockId(0));
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(BlockPoolTest, PeekFreeForetellsAllocate) {
  BlockPool pool(4);
  pool.acquire(BlockId(2));
  const BlockId first = pool.peek_free(0);
  const BlockId second = pool.peek_free(1);
  EXPECT_EQ(pool.allocate(), first);
  EXPECT_EQ(pool.allocate(), second);
}

TEST(BlockPoolDeathTest, MisuseAborts) {
  BlockPool pool(2);
  EXPECT_DEATH(pool.release(BlockId(0)), "count");
  EXPECT_DEATH(pool.retain(BlockId(0)), "count");
  EXPECT_DEATH(pool.ref_count(BlockId(2)), "num_blocks");
  pool.acquire(BlockId(0));
  EXPECT_DEATH(pool.acquire(BlockId(0)), "kNotFree");
}

// The naive model: a map from block to its holders.
TEST(BlockPoolTest, MatchesNaiveModel) {
  EXPECT_TRUE(rc::check([] {
    const int num_blocks = *rc::gen::inRange(1, 12);
    BlockPool pool(num_blocks);
    std::map<BlockId, int> model;
    for (int i = 0; i < num_blocks; ++i) model[BlockId(i)] = 0;
    for (const int op : *rc::gen::container<std::vector<int>>(200, rc::gen::inRange(0, 4 * num_blocks))) {
      const BlockId block(op / 4);
      const int kind = op % 4;
      if (kind == 0) {
        const auto got = pool.allocate();
        const bool any_free = std::ranges::any_of(model, [](const auto& e) { return e.second == 0; });
        RC_ASSERT(got.has_value() == any_free);
        if (got) RC_ASSERT(++model[*got] == 1);
      } else if (kind == 1 && model[block] == 0) {
        pool.acquire(block);
        model[block] = 1;
      } else if (kind == 2 && model[block] > 0) {
        pool.retain(block);
        ++model[block];
      } else if (kind == 3 && model[block] > 0) {
        pool.release(block);
        --model[block];
      }
      pool.check_invariants();
      for (const auto& [id, holders] : model) RC_ASSERT(pool.ref_count(id) == holders);
    }
  }));
}

}  // namespace
}  // namespace rondo::kv
