#include "rl/prompt_digest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace rondo::rl {
namespace {

using ::testing::HasSubstr;

Prompt prompt(std::vector<Token> tokens, std::string truth, std::string source) {
  Prompt made;
  made.tokens = std::make_shared<const std::vector<Token>>(std::move(tokens));
  made.row.ground_truth = std::move(truth);
  made.row.data_source = std::move(source);
  return made;
}

PromptDigest digest(std::vector<Prompt> prompts) {
  return digest_of({.prompts = std::move(prompts), .skipped = 0});
}

TEST(PromptDigestTest, TellsWhatAResultDependsOn) {
  const Prompt a = prompt({1, 2}, "3", "s"), b = prompt({4}, "5", "t");
  const std::vector<PromptDigest> different = {
      digest({}),
      digest({a}),
      digest({a, b}),
      digest({b, a}),
      digest({a, a}),
      digest({prompt({1, 3}, "3", "s"), b}),
      digest({prompt({1, 2}, "4", "s"), b}),
      digest({prompt({1, 2}, "3", "u"), b}),
      digest({prompt({1, 2}, "s", "3"), b}),
      digest({prompt({1, 2}, "3s", ""), b}),
      digest({prompt({1, 2}, "", "3s"), b}),
      digest({prompt({1}, "3", "s"), prompt({2, 4}, "5", "t")}),
  };
  std::set<std::uint64_t> checksums;
  for (const PromptDigest& one : different) checksums.insert(one.checksum);
  EXPECT_EQ(checksums.size(), different.size());
  EXPECT_EQ(digest({a, b}), digest({a, b}));
}

TEST(PromptDigestTest, LeavesOutWhereARowStands) {
  Prompt a = prompt({1, 2}, "3", "s"), moved = a;
  moved.row.index = 7;
  moved.row.extra_info_json = "{}";
  EXPECT_EQ(digest({a}), digest({moved}));
}

TEST(PromptDigestTest, IsTheSameFromVersionToVersion) {
  // Another value would tell everyone who resumes that the data changed. Computed with PyPI xxhash.
  EXPECT_EQ(prompt_digest_json(digest({prompt({1, 2}, "3", "s")})),
            "{\"prompts\":1,\"checksum\":\"619edfbed66867dd\"}\n");
}

TEST(PromptDigestTest, WrittenOneReadsBack) {
  for (const PromptDigest& one :
       {PromptDigest{}, PromptDigest{.prompts = 7, .checksum = 5},
        PromptDigest{.prompts = std::int64_t{1} << 40, .checksum = ~std::uint64_t{0}}}) {
    const auto read = parse_prompt_digest(prompt_digest_json(one));
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(*read, one);
  }
}

TEST(PromptDigestTest, SomethingElseIsRefused) {
  for (const char* text :
       {"", "{}", "[]", R"({"prompts":1})", R"({"prompts":"1","checksum":"0"})",
        R"({"prompts":1,"checksum":5})", R"({"prompts":1,"checksum":""})",
        R"({"prompts":1,"checksum":"12345678901234567"})", R"({"prompts":1,"checksum":"0x1"})"}) {
    const auto read = parse_prompt_digest(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code(), Code::kDataLoss);
    EXPECT_THAT(read.error().message(), HasSubstr("no digest of prompts"));
  }
}

TEST(PromptDigestTest, DifferenceNamesTheNumberWhereThatIsOne) {
  EXPECT_EQ(difference({.prompts = 6, .checksum = 1}, {.prompts = 7, .checksum = 2}),
            "6 prompts -> 7 prompts");
  EXPECT_THAT(difference({.prompts = 6, .checksum = 1}, {.prompts = 6, .checksum = 2}),
              HasSubstr("6 prompts as before, with other tokens"));
}

}  // namespace
}  // namespace rondo::rl
