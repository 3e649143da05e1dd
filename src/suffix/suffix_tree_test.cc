#include "suffix/suffix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "suffix/naive_model.h"

namespace rondo::suffix {
namespace {

using Tokens = std::vector<Token>;

TEST(SuffixTreeTest, FreshTreeAndUnknownRequestMatchNothing) {
  SuffixTree tree(SuffixTree::Config{});
  EXPECT_EQ(tree.match(RequestId(3)), Match{});
  EXPECT_EQ(tree.match(Tokens{1, 2}), Match{});
  EXPECT_FALSE(tree.remove(RequestId(3)));
  EXPECT_TRUE(tree.tokens(RequestId(3)).empty());
  tree.check_invariants();
}

// "b" follows "a" three times, "c" once; a context knows the sequences' starts only as far as they go.
TEST(SuffixTreeTest, CountsWhatFollowedAContext) {
  SuffixTree tree(SuffixTree::Config{});
  const Token a = 1;
  const Token b = 2;
  const Token c = 3;
  tree.append(RequestId(0), Tokens{a, b, a, c});
  tree.append(RequestId(1), Tokens{b, a, b, a, b});
  const Match match = tree.match(Tokens{a});
  EXPECT_EQ(match.length, 1);
  EXPECT_EQ(tree.num_continuations(match.node), 4U);
  EXPECT_EQ(without_targets(tree, match.node),
            (std::vector<Continuation>{{.token = b, .count = 3, .target = 0},
                                       {.token = c, .count = 1, .target = 0}}));
  EXPECT_EQ(tree.match(Tokens{c, a, b}).length, 2);
  EXPECT_EQ(tree.match(Tokens{c}), Match{});  // only at an end
}

TEST(SuffixTreeTest, MemoryStaysWithinItsBound) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
  for (const std::int32_t num_tokens : {2, 40, 100000}) {
    std::mt19937 random(5);
    SuffixTree tree({.max_bytes = kMaxBytes});
    std::int64_t oldest = 0;
    std::int64_t newest = 0;
    std::int64_t least_held = std::numeric_limits<std::int64_t>::max();
    // A sequence that does not fit any more makes room by removing the oldest: for ever.
    for (int i = 0; i < 60000; ++i) {
      const auto token = static_cast<Token>(random() % static_cast<std::uint32_t>(num_tokens));
      while (tree.append(RequestId(newest), {&token, 1}) == 0) {
        ASSERT_LT(oldest, newest);
        EXPECT_TRUE(tree.remove(RequestId(oldest++)));
        least_held = std::min(least_held, tree.num_tokens());
      }
      ASSERT_LE(tree.memory_bytes(), kMaxBytes);
      if (random() % 500 == 0) ++newest;
    }
    tree.check_invariants();
    EXPECT_GT(oldest, 10) << num_tokens;
    EXPECT_GT(least_held, 3000) << num_tokens;
  }
}

TEST(SuffixTreeTest, RefusedTokensLeaveWhatWasTaken) {
  SuffixTree tree({.max_bytes = std::size_t{1} << 18});
  Tokens tokens(20000);
  std::mt19937 random(6);
  for (Token& token : tokens) token = static_cast<Token>(random() % 1000);
  const std::size_t taken = tree.append(RequestId(0), tokens);
  EXPECT_GT(taken, 1000U);
  EXPECT_LT(taken, tokens.size());
  EXPECT_EQ(tree.tokens(RequestId(0)).size(), taken);
  EXPECT_EQ(tree.append(RequestId(0), std::span(tokens).subspan(taken)), 0U);
  tree.check_invariants();
  // What makes room is any removal; then it goes on where it stopped.
  SuffixTree shared({.max_bytes = std::size_t{1} << 18});
  EXPECT_EQ(shared.append(RequestId(0), std::span(tokens).first(taken / 2)), taken / 2);
  const std::size_t beside = shared.append(RequestId(1), tokens);
  EXPECT_LT(beside, tokens.size());
  EXPECT_TRUE(shared.remove(RequestId(0)));
  EXPECT_GT(shared.append(RequestId(1), std::span(tokens).subspan(beside)), 100U);
  shared.check_invariants();
}

TEST(SuffixTreeTest, ValidateNamesTheField) {
  EXPECT_TRUE(SuffixTree::Config{}.validate().has_value());
  const auto message = [](const SuffixTree::Config& config) { return config.validate().error().message(); };
  EXPECT_EQ(message({.max_depth = 0}), "max_depth = 0 must lie in 1..255");
  EXPECT_EQ(message({.max_depth = 256}), "max_depth = 256 must lie in 1..255");
  EXPECT_EQ(message({.max_bytes = 1000}), "max_bytes = 1000 must be at least 65536");
}

TEST(SuffixTreeDeathTest, NegativeTokenIsABug) {
  SuffixTree tree(SuffixTree::Config{});
  EXPECT_DEATH(tree.append(RequestId(0), Tokens{-1}), "tokens");
}

}  // namespace
}  // namespace rondo::suffix
