// Random operations on a tree and on the naive model, compared after each.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "suffix/naive_model.h"
#include "suffix/suffix_tree.h"
#include "testing/times.h"

namespace rondo::suffix {
namespace {

using Tokens = std::vector<Token>;

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
  for (std::uint32_t seed = 0; seed < 60U * kTestTimes; ++seed) {
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

}  // namespace
}  // namespace rondo::suffix
