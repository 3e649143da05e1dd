#include "text/bpe.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace rondo::text {
namespace {

using Strings = std::vector<std::string>;

// Merges the leftmost pair of best rank until none is left.
Strings merge_naively(std::string_view word, const TokenizerSpec& spec) {
  Strings symbols;
  for (const char byte : word) symbols.emplace_back(1, byte);
  while (true) {
    std::size_t best_rank = spec.merges.size();
    std::size_t best = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found =
          std::find(spec.merges.begin(), spec.merges.end(), std::pair(symbols[i], symbols[i + 1]));
      const auto rank = static_cast<std::size_t>(found - spec.merges.begin());
      if (rank < best_rank) {
        best_rank = rank;
        best = i;
      }
    }
    if (best_rank == spec.merges.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

// Random merges over the letters a to d, each of tokens that exist by then.
TokenizerSpec random_spec(int num_merges) {
  TokenizerSpec spec;
  Strings tokens = {"a", "b", "c", "d"};
  std::set<std::string> seen(tokens.begin(), tokens.end());
  for (int i = 0; i < num_merges; ++i) {
    const std::string left = *rc::gen::elementOf(tokens);
    const std::string right = *rc::gen::elementOf(tokens);
    if (left.size() + right.size() > 12) continue;
    if (std::find(spec.merges.begin(), spec.merges.end(), std::pair(left, right)) != spec.merges.end())
      continue;
    spec.merges.emplace_back(left, right);
    if (seen.insert(left + right).second) tokens.push_back(left + right);
  }
  for (const std::string& token : tokens)
    spec.vocab.emplace_back(token, static_cast<Token>(spec.vocab.size()));
  return spec;
}

Strings encode(const Bpe& bpe, const TokenizerSpec& spec, std::string_view word) {
  Bpe::Scratch scratch;
  std::vector<Token> ids;
  bpe.encode(word, scratch, ids);
  Strings out;
  for (const Token id : ids) out.push_back(spec.vocab[static_cast<std::size_t>(id)].first);
  return out;
}

// Short words take the scan, long ones the heap.
RC_GTEST_PROP(BpeTest, MergesLikeTheDefinition, ()) {
  const TokenizerSpec spec = random_spec(*rc::gen::inRange(0, 40));
  const auto bpe = Bpe::create(spec);
  RC_ASSERT(bpe.has_value());
  const auto length = *rc::gen::inRange<std::size_t>(0, 200);
  const auto word = *rc::gen::container<std::string>(length, rc::gen::elementOf(std::string("abcd")));
  RC_ASSERT(encode(*bpe, spec, word) == merge_naively(word, spec));
}

TEST(BpeTest, AMegabyteOfOneLetterIsNotQuadratic) {
  TokenizerSpec spec;
  spec.vocab = {{"a", 0}, {"aa", 1}, {"aaaa", 2}};
  spec.merges = {{"a", "a"}, {"aa", "aa"}};
  const auto bpe = Bpe::create(spec);
  ASSERT_TRUE(bpe.has_value());
  Bpe::Scratch scratch;
  std::vector<Token> ids;
  bpe->encode(std::string(1 << 20, 'a'), scratch, ids);  // a quadratic merge would take minutes
  EXPECT_EQ(ids, std::vector<Token>(1 << 18, 2));
}

TEST(BpeTest, LaterOfTwoEqualMergesGivesTheRank) {
  TokenizerSpec spec;
  spec.vocab = {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"bc", 4}};
  spec.merges = {{"a", "b"}, {"b", "c"}, {"a", "b"}};
  const auto bpe = Bpe::create(spec);
  ASSERT_TRUE(bpe.has_value());
  EXPECT_EQ(encode(*bpe, spec, "abc"), (Strings{"a", "bc"}));
}

TEST(BpeTest, BytesWithoutATokenVanishOrBecomeUnk) {
  TokenizerSpec spec;
  spec.vocab = {{"a", 0}, {"b", 1}, {"ab", 2}, {"?", 3}};
  spec.merges = {{"a", "b"}};
  EXPECT_EQ(encode(*Bpe::create(spec), spec, "xaxxb"), (Strings{"ab"}));
  spec.unk_token = "?";
  EXPECT_EQ(encode(*Bpe::create(spec), spec, "xaxxb"), (Strings{"?", "a", "?", "?", "b"}));
  spec.fuse_unk = true;
  EXPECT_EQ(encode(*Bpe::create(spec), spec, "xaxxb"), (Strings{"?", "a", "?", "b"}));
}

TEST(BpeTest, IgnoreMergesTakesWholeWordsFirst) {
  TokenizerSpec spec;
  spec.vocab = {{"a", 0}, {"b", 1}, {"ab", 2}, {"aba", 3}};
  spec.merges = {{"a", "b"}};
  EXPECT_EQ(encode(*Bpe::create(spec), spec, "aba"), (Strings{"ab", "a"}));
  spec.ignore_merges = true;
  EXPECT_EQ(encode(*Bpe::create(spec), spec, "aba"), (Strings{"aba"}));
  EXPECT_EQ(encode(*Bpe::create(spec), spec, "abab"), (Strings{"ab", "ab"}));
}

TEST(BpeTest, NamesTheMergeThatTheVocabularyLacks) {
  TokenizerSpec spec;
  spec.vocab = {{"a", 0}, {"b", 1}};
  spec.merges = {{"a", "b"}};
  const auto bpe = Bpe::create(spec);
  ASSERT_FALSE(bpe.has_value());
  EXPECT_EQ(bpe.error().code(), Code::kDataLoss);
  EXPECT_NE(bpe.error().message().find("model.merges[0]"), std::string::npos);
}

}  // namespace
}  // namespace rondo::text
