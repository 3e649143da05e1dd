#include "suffix/draft.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "suffix/naive_model.h"

namespace rondo::suffix {
namespace {

using Tokens = std::vector<Token>;

struct Drafted {
  Draft draft;
  Tokens tokens;
  std::vector<std::int32_t> parents;
  std::vector<float> scores;
  bool operator==(const Drafted&) const = default;
};

void PrintTo(const Drafted& drafted, std::ostream* out) {
  *out << "match " << drafted.draft.match_length << " score " << drafted.draft.score << ":";
  for (std::size_t i = 0; i < drafted.tokens.size(); ++i)
    *out << " " << drafted.tokens[i] << "<" << drafted.parents[i] << "@" << drafted.scores[i];
}

template <class Write>
Drafted drafted(const DraftArgs& args, Write write) {
  const auto room = static_cast<std::size_t>(args.max_tokens);
  Drafted result{.draft = {},
                 .tokens = Tokens(room),
                 .parents = std::vector<std::int32_t>(room),
                 .scores = std::vector<float>(room)};
  result.draft = write(DraftBuffers{result.tokens, result.parents, result.scores});
  const auto used = static_cast<std::size_t>(result.draft.num_tokens);
  result.tokens.resize(used);
  result.parents.resize(used);
  result.scores.resize(used);
  return result;
}

Drafted draft_of(const SuffixTree& tree, Match match, const DraftArgs& args) {
  return drafted(args, [&](const DraftBuffers& out) { return draft(tree, match, args, out); });
}

Drafted draft_of(const NaiveModel& model, const Tokens& context, const DraftArgs& args) {
  return drafted(args, [&](const DraftBuffers& out) { return model.draft(context, args, out); });
}

TEST(DraftTest, FollowsASibling) {
  SuffixTree tree(SuffixTree::Config{});
  tree.append(RequestId(0), Tokens{1, 2, 3, 4, 5, 6});
  tree.append(RequestId(1), Tokens{9, 2, 3});
  const Drafted got = draft_of(tree, tree.match(RequestId(1)), {.max_tokens = 2});
  EXPECT_EQ(got, (Drafted{{.num_tokens = 2, .match_length = 2, .score = 2}, {4, 5}, {-1, 0}, {1, 1}}));
}

TEST(DraftTest, OwnPastCountsButOwnEndDoesNot) {
  SuffixTree tree(SuffixTree::Config{});
  tree.append(RequestId(0), Tokens{1, 2});
  EXPECT_EQ(draft_of(tree, tree.match(RequestId(0)), {}).draft.num_tokens, 0);
  tree.append(RequestId(0), Tokens{3, 1});
  const Drafted got = draft_of(tree, tree.match(RequestId(0)), {});
  EXPECT_EQ(got.tokens, (Tokens{2, 3, 1}));
  EXPECT_EQ(got.draft.match_length, 1);
}

// After 7: 1, 1, 2, 2; after 1: 3 and 4; after 2: 5 twice.
TEST(DraftTest, ScoresAreProductsOfFrequencies) {
  SuffixTree tree(SuffixTree::Config{});
  tree.append(RequestId(0), Tokens{7, 1, 3, 9, 7, 2, 5, 8, 7, 1, 4, 9, 7, 2, 5, 6});
  const Tokens context = {7};
  const Drafted path = draft_of(tree, tree.match(context), {.max_tokens = 3, .min_prob = 0.3});
  EXPECT_EQ(path, (Drafted{{.num_tokens = 1, .match_length = 1, .score = 0.5}, {1}, {-1}, {0.5}}));
  const Drafted tree_draft = draft_of(tree, tree.match(context), {.max_tokens = 5, .top_k = 2});
  EXPECT_EQ(tree_draft, (Drafted{{.num_tokens = 5, .match_length = 1, .score = 2.0},
                                 {1, 2, 5, 3, 4},
                                 {-1, -1, 1, 0, 0},
                                 {0.5, 0.5, 0.5, 0.25, 0.25}}));
}

// After 1 2 one thing follows, but it ends; after 2 alone another goes on for longer.
TEST(DraftTest, ShorterSuffixWinsByItsScore) {
  SuffixTree tree(SuffixTree::Config{});
  tree.append(RequestId(0), Tokens{1, 2, 3});
  for (int i = 1; i < 5; ++i) tree.append(RequestId(i), Tokens{9, 2, 4, 5, 6, 7});
  const Tokens context = {1, 2};
  const Drafted free = draft_of(tree, tree.match(context), {});
  EXPECT_EQ(free.tokens, (Tokens{4, 5, 6, 7}));
  EXPECT_EQ(free.draft.match_length, 1);
  EXPECT_EQ(draft_of(tree, tree.match(context), {.min_match = 2}).tokens, (Tokens{3}));
  EXPECT_EQ(draft_of(tree, tree.match(context), {.min_match = 3}).draft.num_tokens, 0);
}

TEST(DraftTest, GoesOnBeyondTheDepth) {
  SuffixTree tree({.max_depth = 2});
  Tokens tokens(100);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(i);
  tree.append(RequestId(0), tokens);
  const Drafted got = draft_of(tree, tree.match(Tokens{9, 10, 11}), {.max_tokens = 64});
  EXPECT_EQ(got.draft.num_tokens, 64);
  EXPECT_EQ(got.tokens.back(), 11 + 64);
}

TEST(DraftTest, ValidateNamesTheField) {
  EXPECT_TRUE(DraftArgs{}.validate().has_value());
  const auto message = [](const DraftArgs& args) { return args.validate().error().message(); };
  EXPECT_EQ(message({.max_tokens = 65}), "max_tokens = 65 must lie in 0..64");
  EXPECT_EQ(message({.min_match = 0}), "min_match = 0 must lie in 1..255");
  EXPECT_EQ(message({.min_match = 5, .max_match = 4}), "max_match = 4 must lie in 5..255");
  EXPECT_EQ(message({.min_prob = 1.5}), "min_prob = 1.5 must lie in 0..1");
  EXPECT_EQ(message({.top_k = 9}), "top_k = 9 must lie in 1..8");
}

DraftArgs random_args(std::mt19937& random, std::int32_t max_depth) {
  const auto below = [&](std::int32_t bound) {
    return static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(bound));
  };
  const std::int32_t min_match = below(4) == 0 ? 1 + below(max_depth) : 1;
  return {.max_tokens = below(12),
          .min_match = min_match,
          .max_match = below(2) == 0 ? kLongestContext : min_match + below(max_depth),
          .min_prob = below(3) * 0.15,
          .top_k = 1 + below(4)};
}

struct Sizes {
  std::int32_t max_depth;
  std::int32_t num_tokens;
};

class DraftPropertyTest : public testing::TestWithParam<Sizes> {};

TEST_P(DraftPropertyTest, EqualsTheNaiveModel) {
  const auto [max_depth, num_tokens] = GetParam();
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::int32_t bound) {
      return static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(bound));
    };
    SuffixTree tree({.max_depth = max_depth});
    NaiveModel model(max_depth);
    for (int operation = 0; operation < 40; ++operation) {
      const RequestId request(below(3));
      if (below(12) == 0) {
        tree.remove(request);
        model.remove(request);
      } else {
        Tokens tokens(static_cast<std::size_t>(below(6)));
        for (Token& token : tokens) token = below(num_tokens);
        tree.append(request, tokens);
        model.append(request, tokens);
      }
      const DraftArgs args = random_args(random, max_depth);
      if (const auto it = model.sequences().find(request); it != model.sequences().end()) {
        ASSERT_EQ(draft_of(tree, tree.match(request), args), draft_of(model, it->second, args));
      }
      Tokens context(static_cast<std::size_t>(below(8)));
      for (Token& token : context) token = below(num_tokens);
      ASSERT_EQ(draft_of(tree, tree.match(context), args), draft_of(model, context, args));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, DraftPropertyTest,
                         testing::Values(Sizes{1, 2}, Sizes{2, 3}, Sizes{4, 2}, Sizes{24, 2}, Sizes{24, 4},
                                         Sizes{6, 20}));

// The same sequences, taken in turns or one by one, in any order, with others that come and go.
TEST(DraftTest, DependsOnTheSequencesAlone) {
  std::mt19937 random(7);
  std::vector<Tokens> sequences(6, Tokens(60));
  for (Tokens& sequence : sequences)
    for (Token& token : sequence) token = static_cast<Token>(random() % 5);
  SuffixTree one_by_one(SuffixTree::Config{});
  for (std::size_t i = 0; i < sequences.size(); ++i)
    one_by_one.append(RequestId(static_cast<std::int64_t>(i)), sequences[i]);
  SuffixTree in_turns(SuffixTree::Config{});
  in_turns.append(RequestId(99), sequences[0]);
  for (std::size_t at = 0; at < 60; at += 4) {
    for (std::size_t i = sequences.size(); i-- > 0;)
      in_turns.append(RequestId(static_cast<std::int64_t>(i)), std::span(sequences[i]).subspan(at, 4));
    if (at == 20) in_turns.remove(RequestId(99));
  }
  EXPECT_EQ(one_by_one.num_nodes(), in_turns.num_nodes());
  const DraftArgs args{.max_tokens = 16, .min_prob = 0, .top_k = 4};
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    for (std::size_t length = 0; length <= 60; ++length) {
      const auto context = std::span(sequences[i]).first(length);
      EXPECT_EQ(draft_of(one_by_one, one_by_one.match(context), args),
                draft_of(in_turns, in_turns.match(context), args));
    }
  }
}

}  // namespace
}  // namespace rondo::suffix
