#include "rollout/response_history.h"

#include <gtest/gtest.h>

namespace rondo::rollout {
namespace {

using Tokens = std::vector<Token>;

ResponseHistory make(int responses, std::int64_t memory = 1 << 20) {
  return ResponseHistory({.enabled = true, .responses = responses, .memory = {memory}});
}

Tokens of(Token token, int count = 3) {
  return Tokens(static_cast<std::size_t>(count), token);
}

TEST(ResponseHistoryTest, ShowsWhatEarlierVersionsAnswered) {
  ResponseHistory history = make(8);
  history.add(of(1), of(10, 4));
  EXPECT_TRUE(history.responses(of(1)).empty()) << "of the present version";
  history.new_policy_version();
  ASSERT_EQ(history.responses(of(1)).size(), 1U);
  EXPECT_EQ(history.responses(of(1))[0], of(10, 4));
  EXPECT_EQ(history.lengths(of(1)), (std::vector<std::int32_t>{4}));
  EXPECT_TRUE(history.responses(of(2)).empty());
}

TEST(ResponseHistoryTest, KeepsTheNewestResponses) {
  ResponseHistory history = make(3);
  for (const Token token : {10, 11}) history.add(of(1), of(token));
  history.new_policy_version();
  for (const Token token : {20, 21}) history.add(of(1), of(token));
  history.new_policy_version();
  const auto kept = history.responses(of(1));
  EXPECT_EQ(std::vector(kept.begin(), kept.end()), (std::vector<Tokens>{of(20), of(21), of(10)}));
  for (const Token token : {30, 31, 32, 33}) history.add(of(1), of(token));
  history.new_policy_version();
  EXPECT_EQ(history.responses(of(1)).size(), 3U);
  EXPECT_EQ(history.responses(of(1))[2], of(32));
}

TEST(ResponseHistoryTest, MemoryIsBoundedAndTheOldestPromptsGo) {
  constexpr int kPrompts = 50;
  ResponseHistory history = make(2, 40 * 100 * 4);  // 40 responses of 100 tokens
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < kPrompts; ++i) {
      history.add(of(i), of(round, 100));
      history.new_policy_version();
      EXPECT_LE(history.bytes(), 40 * 100 * 4);
    }
  }
  EXPECT_EQ(history.num_prompts(), 40U);
  EXPECT_TRUE(history.responses(of(5)).empty());
  EXPECT_EQ(history.responses(of(kPrompts - 1))[0], of(3, 100));
  ResponseHistory none = make(2, 0);
  none.add(of(1), of(2));
  none.new_policy_version();
  EXPECT_EQ(none.num_prompts(), 0U);
  EXPECT_EQ(none.bytes(), 0);
}

}  // namespace
}  // namespace rondo::rollout
