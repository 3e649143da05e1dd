#include "text/pattern.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "text/pre_tokenizer.h"
#include "text/utf8.h"

namespace rondo::text {
namespace {

using Strings = std::vector<std::string>;

Strings split(const Pattern& pattern, std::string_view text) {
  Strings pieces;
  pattern.split(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

Strings split(std::string_view regex, std::string_view text) {
  const auto pattern = Pattern::compile(regex);
  EXPECT_TRUE(pattern.has_value()) << pattern.error().to_string();
  return pattern ? split(*pattern, text) : Strings();
}

TEST(PatternTest, CutsAtMatchesAndKeepsWhatLiesBetween) {
  EXPECT_EQ(split("[0-9]+", "a12b3"), (Strings{"a", "12", "b", "3"}));
  EXPECT_EQ(split("x*", "axxb"), (Strings{"a", "xx", "b"}));  // an empty match cuts nothing
  EXPECT_EQ(split("q", "abc"), (Strings{"abc"}));
  EXPECT_EQ(split("q", ""), Strings());
}

TEST(PatternTest, WhiteSpaceIsTheUnicodeProperty) {
  EXPECT_EQ(split(R"(\s+)", "a\u180e\u0085\u2003b"), (Strings{"a\u180e", "\u0085\u2003", "b"}));
  EXPECT_EQ(split(R"(\S+)", "a\u180e\u0085b"), (Strings{"a\u180e", "\u0085", "b"}));
  EXPECT_EQ(split(R"([^\s]+)", "a\u180e\u0085b"), (Strings{"a\u180e", "\u0085", "b"}));
  EXPECT_EQ(split(R"([\S]+)", "a\u180e\u0085b"), (Strings{"a\u180e", "\u0085", "b"}));
}

TEST(PatternTest, DotStopsAtLineFeedOnly) {
  EXPECT_EQ(split(".+", "a\rb\nc"), (Strings{"a\rb", "\n", "c"}));
}

TEST(PatternTest, LiteralIsNoExpression) {
  const auto pattern = Pattern::literal("a.b");
  ASSERT_TRUE(pattern.has_value());
  EXPECT_EQ(split(*pattern, "axba.b"), (Strings{"axb", "a.b"}));
}

TEST(PatternTest, RefusesWhatEnginesReadDifferently) {
  for (const char* regex :
       {R"(\w+)", R"(\bword)", "^a",         "a$",     "[a[b]]", "[a&&b]",         R"(\h)", R"(\1)",
        "(?m:.)", "(?i)a",     "(?<name>a)", "(*UTF)", "a{,3}",  "a{1,2}+",        "a{2}?", "[]a]",
        "[a",     R"(\pL)",    "\\",         R"(a\)",  "(",      R"(\p{Nonsense})"}) {
    const auto pattern = Pattern::compile(regex);
    ASSERT_FALSE(pattern.has_value()) << regex;
    EXPECT_EQ(pattern.error().code(), Code::kUnsupported) << regex;
  }
}

// More backtracking than JIT's stack holds: the interpreter takes over.
TEST(PatternTest, LongBacktrackingFindsTheSameMatch) {
  const std::string text(200000, 'a');
  EXPECT_EQ(split("(?:a|b)+c", text + "c"), (Strings{text + "c"}));
}

// Text that reaches every branch of the scanners, of code points that PCRE2's tables know (they are older
// than utf8proc's).
std::string random_text() {
  static const Pattern unassigned = *Pattern::compile(R"(\p{Cn})");
  static const std::vector<std::string> kParts = {
      " ",      "  ",      "\t", "\n",   "\r\n",   "\r",         "\u00a0",       "\u0085", "\u2003",
      "\u180e", "'",       "'s", "'S",   "'ll",    "'LL",        "'re",          "'Ve",    "'m",
      "'d",     "'\u017f", "l",  "word", "\u00e9", "e\u0301",    "\u4e2d\u6587", "1",      "234567",
      "\u00bd", "\u0664",  "!",  "...",  "_",      "\U0001F600", "\u200d"};
  std::string text;
  const int length = *rc::gen::inRange(0, 24);
  for (int i = 0; i < length; ++i) {
    if (*rc::gen::inRange(0, 4) != 0) {
      text += *rc::gen::elementOf(kParts);
      continue;
    }
    const auto value = *rc::gen::inRange<std::uint32_t>(1, 0x30000);
    std::string one;
    if (value < 0xD800 || value >= 0xE000) append_code_point(value, one);
    if (split(unassigned, "x" + one).size() == 1) text += one;
  }
  return text;
}

Strings words(const std::vector<PreTokenizerStep>& steps, PreTokenizer::Engine engine,
              std::string_view text) {
  const auto pre_tokenizer = PreTokenizer::create(steps, engine);
  EXPECT_TRUE(pre_tokenizer.has_value());
  Strings out;
  pre_tokenizer->split(text, [&](std::string_view word) { out.emplace_back(word); });
  return out;
}

void expect_equal_engines(const std::vector<PreTokenizerStep>& steps) {
  const std::string text = random_text();
  const Strings scanned = words(steps, PreTokenizer::Engine::kScanners, text);
  const Strings matched = words(steps, PreTokenizer::Engine::kRegexOnly, text);
  RC_ASSERT(scanned == matched);
}

RC_GTEST_PROP(PatternTest, Gpt2ScannerEqualsItsPattern, ()) {
  expect_equal_engines({ByteLevelStep{}});
}

RC_GTEST_PROP(PatternTest, Llama3ScannerEqualsItsPattern, ()) {
  expect_equal_engines({SplitStep{std::string(kLlama3Pattern)}, ByteLevelStep{.use_regex = false}});
}

RC_GTEST_PROP(PatternTest, Qwen2ScannerEqualsItsPattern, ()) {
  expect_equal_engines({SplitStep{std::string(kQwen2Pattern)}, ByteLevelStep{.use_regex = false}});
}

RC_GTEST_PROP(PatternTest, DigitsBeforeGpt2EqualTheirPattern, ()) {
  const std::string text = random_text();
  const Strings scanned =
      words({DigitsStep{.individual = true}, ByteLevelStep{}}, PreTokenizer::Engine::kScanners, text);
  const Strings matched =
      words({SplitStep{R"(\p{N})"}, ByteLevelStep{}}, PreTokenizer::Engine::kRegexOnly, text);
  RC_ASSERT(scanned == matched);
}

TEST(PatternTest, PrefixSpaceGoesToEveryPieceThatLacksOne) {
  const std::vector<PreTokenizerStep> steps = {DigitsStep{.individual = true},
                                               ByteLevelStep{.add_prefix_space = true}};
  EXPECT_EQ(words(steps, PreTokenizer::Engine::kScanners, "ab1 c"), (Strings{" ab", " 1", " c"}));
}

}  // namespace
}  // namespace rondo::text
