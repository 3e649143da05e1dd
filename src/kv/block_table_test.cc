#include "kv/block_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>

namespace rondo::kv {
namespace {

constexpr std::array kThree = {BlockId(0), BlockId(2), BlockId(3)};

TEST(BlockTableTest, HoldsItsBlocksUntilItEnds) {
  BlockPool pool(4);
  {
    BlockTable table(pool);
    table.acquire(kThree);
    EXPECT_EQ(pool.num_free(), 1);
    EXPECT_TRUE(std::ranges::equal(table.blocks(), kThree));
  }
  EXPECT_EQ(pool.num_free(), 4);
}

TEST(BlockTableTest, SharedBlocksLiveAsLongAsOneHolder) {
  BlockPool pool(4);
  BlockTable sibling(pool);
  {
    BlockTable leader(pool);
    leader.acquire(kThree);
    sibling.share(leader.blocks().first(2));
    EXPECT_EQ(pool.ref_count(BlockId(2)), 2);
  }
  EXPECT_EQ(pool.ref_count(BlockId(0)), 1);
  EXPECT_EQ(pool.ref_count(BlockId(2)), 1);
  EXPECT_EQ(pool.ref_count(BlockId(3)), 0);
}

TEST(BlockTableTest, MoveTransfersTheReferences) {
  BlockPool pool(4);
  BlockTable a(pool);
  a.acquire(kThree);
  BlockTable b(std::move(a));
  EXPECT_EQ(b.size(), 3);
  BlockTable c(pool);
  c.acquire(std::array{BlockId(1)});
  c = std::move(b);
  EXPECT_EQ(pool.ref_count(BlockId(1)), 0);
  EXPECT_EQ(pool.ref_count(BlockId(0)), 1);
  EXPECT_EQ(c.size(), 3);
}

TEST(BlockTableTest, TruncateReleasesTheRest) {
  BlockPool pool(4);
  BlockTable table(pool);
  table.acquire(kThree);
  table.truncate(1);
  EXPECT_EQ(table.size(), 1);
  EXPECT_EQ(pool.num_free(), 3);
  table.truncate(2);
  EXPECT_EQ(table.size(), 1);
}

}  // namespace
}  // namespace rondo::kv
