#include "engine/stop_condition.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "testing/tiny_model.h"

namespace rondo::engine {
namespace {

using batch::FinishReason;

constexpr Token kEnd = 257;  // <|im_end|> of the byte tokenizer

class StopConditionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path folder = ::testing::TempDir() + "/rondo_stop_condition_test_model";
    std::filesystem::remove_all(folder);
    ASSERT_TRUE(testing::write_tiny_model_folder(folder, 1));
    tokenizer_ = text::Tokenizer::from_file(folder / "tokenizer.json").value();
    std::filesystem::remove_all(folder);
  }

  // How many bytes of `text`, a token each, pass before the response ends; -1 if it does not.
  int bytes_until_stop(std::string_view text, std::vector<std::string> strings) {
    StopCondition condition(
        std::make_shared<const StopRules>(StopRules{.tokens = {}, .strings = std::move(strings)}),
        tokenizer_.get());
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto reason = condition.push(static_cast<unsigned char>(text[i]));
      if (!reason) continue;
      EXPECT_EQ(*reason, FinishReason::kStopString);
      return static_cast<int>(i + 1);
    }
    return -1;
  }

  std::unique_ptr<const text::Tokenizer> tokenizer_;
};

TEST_F(StopConditionTest, StringsSpanTokens) {
  EXPECT_EQ(bytes_until_stop("abc", {"b"}), 2);
  EXPECT_EQ(bytes_until_stop("the answer is 4.", {"answer"}), 10);
  EXPECT_EQ(bytes_until_stop("the answe", {"answer"}), -1);
}

TEST_F(StopConditionTest, TheFirstOfSeveralStringsWins) {
  EXPECT_EQ(bytes_until_stop("one two three", {"three", "two", "zzz"}), 7);
  EXPECT_EQ(bytes_until_stop("one two three", {"a long one that never comes", "e"}), 3);
}

TEST_F(StopConditionTest, AMatchMayStartInsideAFailedOne) {
  EXPECT_EQ(bytes_until_stop("xaaaab", {"aab"}), 6);
  EXPECT_EQ(bytes_until_stop("ababac", {"abac"}), 6);
}

TEST_F(StopConditionTest, CharactersOfSeveralTokensCountWhenComplete) {
  EXPECT_EQ(bytes_until_stop("π = 3", {"π"}), 2);
  EXPECT_EQ(bytes_until_stop("\xCFx", {"x"}), 2);  // half a character, then the string
}

TEST_F(StopConditionTest, EmptyStringsNeverMatch) {
  EXPECT_EQ(bytes_until_stop("abc", {""}), -1);
  EXPECT_EQ(bytes_until_stop("abc", {"", "c"}), 3);
}

TEST_F(StopConditionTest, TokensStopWithOrWithoutStrings) {
  const auto tokens = std::make_shared<const StopRules>(StopRules{.tokens = {kEnd, 7}, .strings = {}});
  const auto both = std::make_shared<const StopRules>(StopRules{.tokens = {kEnd}, .strings = {"b"}});
  StopCondition by_token(tokens, nullptr), by_both(both, tokenizer_.get());
  EXPECT_FALSE(by_token.push(8));
  EXPECT_EQ(by_token.push(7), FinishReason::kStopToken);
  EXPECT_FALSE(by_both.push('a'));
  EXPECT_EQ(by_both.push(kEnd), FinishReason::kStopToken);
}

}  // namespace
}  // namespace rondo::engine
