#include "base/text_distance.h"

#include <gtest/gtest.h>

namespace rondo {
namespace {

TEST(TextDistanceTest, CountsEditsWithTranspositions) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("lr", "rl"), 1);
  EXPECT_EQ(edit_distance("same", "same"), 0);
}

TEST(TextDistanceTest, FindsTheNearestName) {
  EXPECT_EQ(nearest_name("temprature", {"top_p", "temperature", "top_k"}), "temperature");
  EXPECT_EQ(nearest_name("x", {}), "");
}

}  // namespace
}  // namespace rondo
