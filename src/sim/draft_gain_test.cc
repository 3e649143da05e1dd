#include "sim/draft_gain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rondo::sim {
namespace {

TEST(DraftGain, GivesTheTablesLengthsAtTheTablesDrafts) {
  const DraftGain gain{DraftGain::Config{}};
  EXPECT_NEAR(gain.tokens(lane_of(false, 0), 8, 1), 1.70, 1e-9);
  EXPECT_NEAR(gain.tokens(lane_of(true, 1), 8, 1), 2.04, 1e-9);
  EXPECT_NEAR(gain.tokens(lane_of(false, 5), 8, 1), 2.32, 1e-9);
  EXPECT_NEAR(gain.tokens(lane_of(false, 100), 8, 2), 2.69, 1e-9);
}

TEST(DraftGain, GrowsWithDraftsAndSiblings) {
  const DraftGain gain{DraftGain::Config{}};
  for (std::int32_t n = 0; n < 16; ++n) {
    const std::size_t lane = lane_of(false, n);
    EXPECT_EQ(gain.tokens(lane, 0, 1), 1.0);
    EXPECT_GE(gain.tokens(lane, 4, 1), gain.tokens(lane_of(false, std::max(0, n - 1)), 4, 1));
    for (std::int32_t gamma = 1; gamma < 8; ++gamma) {
      EXPECT_GT(gain.tokens(lane, gamma, 1), gain.tokens(lane, gamma - 1, 1));
    }
  }
}

TEST(DraftGain, ScalesTheTokensBeyondTheFirst) {
  const DraftGain gain{DraftGain::Config{.scale = 0.5}};
  EXPECT_NEAR(gain.tokens(lane_of(false, 0), 8, 1), 1.35, 1e-9);
}

TEST(DraftGain, RefusesTablesThatFitNothing) {
  EXPECT_FALSE((DraftGain::Config{.siblings = {1, 2, 3, 4}}.validate()));
  EXPECT_FALSE((DraftGain::Config{.siblings = {0, 1}}.validate()));
  EXPECT_THAT((DraftGain::Config{.table_drafts = 1}.validate().error().message()),
              ::testing::HasSubstr("at most 2"));
}

}  // namespace
}  // namespace rondo::sim
