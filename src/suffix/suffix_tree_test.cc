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

std::vector<Continuation> without_targets(const SuffixTree& tree, NodeId node) {
  std::vector<Continuation> result;
  for (std::int32_t rank = 0; rank < kMaxRanked; ++rank)
    if (const Continuation* next = tree.continuation(node, rank))
      result.push_back({.token = next->token, .count = next->count, .target = 0});
  return result;
}

// The longest match of the context, and what followed each of its suffixes.
void expect_equal(const SuffixTree& tree, Match match, const NaiveModel& model, const Tokens& context) {
  ASSERT_EQ(match.length, model.match_length(context));
  for (; match.length > 0; match = tree.shorter(match.node)) {
    for (std::int32_t length = match.length; length > tree.shorter(match.node).length; --length) {
      auto want = model.continuations(std::span(context).last(static_cast<std::size_t>(length)));
      std::uint32_t total = 0;
      for (const Continuation& entry : want) total += entry.count;
      ASSERT_EQ(tree.num_continuations(match.node), total);
      want.resize(std::min(want.size(), std::size_t{kMaxRanked}));
      ASSERT_EQ(without_targets(tree, match.node), want);
    }
  }
}

struct Sizes {
  std::int32_t max_depth;
  Token num_tokens;
  int num_requests;
  int num_operations;
};

void PrintTo(const Sizes& sizes, std::ostream* out) {
  *out << "depth " << sizes.max_depth << " tokens " << sizes.num_tokens << " requests " << sizes.num_requests;
}

class SuffixTreePropertyTest : public testing::TestWithParam<Sizes> {};

// Interleaved spans, removals and returns.
TEST_P(SuffixTreePropertyTest, EqualsTheNaiveModelAfterEveryOperation) {
  const Sizes sizes = GetParam();
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); };
    SuffixTree tree({.max_depth = sizes.max_depth});
    NaiveModel model(sizes.max_depth);
    for (int operation = 0; operation < sizes.num_operations; ++operation) {
      const RequestId request(below(sizes.num_requests));
      if (below(8) == 0) {
        EXPECT_EQ(tree.remove(request), model.sequences().contains(request));
        model.remove(request);
      } else {
        Tokens tokens(static_cast<std::size_t>(below(6)));
        for (Token& token : tokens) token = below(below(4) == 0 ? 2 : sizes.num_tokens);
        EXPECT_EQ(tree.append(request, tokens), tokens.size());
        model.append(request, tokens);
      }
      tree.check_invariants();
      EXPECT_EQ(tree.num_requests(), model.sequences().size());
      std::int64_t num_tokens = 0;
      for (const auto& [id, sequence] : model.sequences()) {
        num_tokens += static_cast<std::int64_t>(sequence.size());
        ASSERT_EQ(Tokens(tree.tokens(id).begin(), tree.tokens(id).end()), sequence);
      }
      ASSERT_EQ(tree.num_tokens(), num_tokens);
      const auto& sequences = model.sequences();
      if (const auto it = sequences.find(request); it != sequences.end()) {
        ASSERT_NO_FATAL_FAILURE(expect_equal(tree, tree.match(request), model, it->second));
      }
      Tokens context(static_cast<std::size_t>(below(2 * sizes.max_depth)));
      for (Token& token : context) token = below(sizes.num_tokens);
      ASSERT_NO_FATAL_FAILURE(expect_equal(tree, tree.match(context), model, context));
    }
    for (int request = 0; request < sizes.num_requests; ++request) tree.remove(RequestId(request));
    tree.check_invariants();
    EXPECT_EQ(tree.num_nodes(), 2U);  // the root and the start
    EXPECT_EQ(tree.num_tokens(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, SuffixTreePropertyTest,
                         testing::Values(Sizes{1, 2, 2, 40}, Sizes{2, 2, 3, 60}, Sizes{3, 2, 4, 80},
                                         Sizes{5, 3, 3, 80}, Sizes{24, 2, 3, 60}, Sizes{24, 4, 5, 80},
                                         Sizes{4, 30, 4, 80}, Sizes{255, 2, 2, 40}));

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
