#include "kv/tentative_pool.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <vector>

namespace rondo::kv {
namespace {

TEST(TentativePoolTest, LeavesThePoolAlone) {
  BlockPool pool(2);
  pool.acquire(BlockId(0));
  TentativePool tentative;
  tentative.reset(pool);
  EXPECT_EQ(tentative.allocate(), BlockId(1));
  EXPECT_EQ(tentative.allocate(), std::nullopt);
  tentative.release(BlockId(0));
  EXPECT_EQ(tentative.allocate(), BlockId(0));
  EXPECT_EQ(pool.num_free(), 1);
  tentative.reset(pool);
  EXPECT_EQ(tentative.num_free(), 1);
}

TEST(TentativePoolTest, SharedBlockIsFreeAfterItsLastHolder) {
  BlockPool pool(1);
  pool.acquire(BlockId(0));
  pool.retain(BlockId(0));
  TentativePool tentative;
  tentative.reset(pool);
  tentative.release(BlockId(0));
  EXPECT_EQ(tentative.num_free(), 0);
  tentative.release(BlockId(0));
  EXPECT_EQ(tentative.num_free(), 1);
  EXPECT_DEATH(tentative.release(BlockId(0)), "released < holders");
}

// Releases first, then acquires of the allocated ids: carrying the paper out always works.
TEST(TentativePoolTest, CarriedOutOnThePoolGivesTheForetoldState) {
  EXPECT_TRUE(rc::check([] {
    const int num_blocks = *rc::gen::inRange(1, 10);
    BlockPool pool(num_blocks);
    TentativePool tentative;
    for (int round = 0; round < 4; ++round) {
      tentative.reset(pool);
      std::vector<BlockId> released;
      std::vector<BlockId> allocated;
      std::vector<int> left(static_cast<std::size_t>(num_blocks));
      for (int i = 0; i < num_blocks; ++i) left[static_cast<std::size_t>(i)] = pool.ref_count(BlockId(i));
      for (const int op : *rc::gen::container<std::vector<int>>(12, rc::gen::inRange(-3, num_blocks))) {
        if (op < 0) {
          const bool any = tentative.num_free() > 0;
          const auto block = tentative.allocate();
          RC_ASSERT(block.has_value() == any);
          if (block) allocated.push_back(*block);
        } else if (left[static_cast<std::size_t>(op)] > 0) {
          --left[static_cast<std::size_t>(op)];
          tentative.release(BlockId(op));
          released.push_back(BlockId(op));
        }
      }
      const std::int32_t foretold = tentative.num_free();
      for (const BlockId block : released) pool.release(block);
      for (const BlockId block : allocated) pool.acquire(block);
      pool.check_invariants();
      RC_ASSERT(pool.num_free() == foretold);
      if (!allocated.empty()) pool.retain(allocated[0]);
    }
  }));
}

}  // namespace
}  // namespace rondo::kv
