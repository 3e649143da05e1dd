#include "reward/reward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace rondo::reward {
namespace {

using testing::HasSubstr;

RewardResult result_of(const Config& config, std::string_view response, std::string_view truth,
                       std::string_view data_source = "any") {
  const auto reward = make_reward(config).value();
  auto result = reward({.data_source = data_source, .response = response, .ground_truth = truth});
  if (!result) ADD_FAILURE() << result.error().message();
  return result.value_or(RewardResult{.score = std::nan("")});
}

double score(Function function, std::string_view response, std::string_view truth) {
  return result_of({.function = function}, response, truth).score;
}

TEST(RewardTest, Gsm8kComparesTheMarkedNumberAsAString) {
  EXPECT_EQ(score(Function::kGsm8k, "so #### 72", "72"), 1);
  EXPECT_EQ(score(Function::kGsm8k, "so #### 1,000", "1000"), 1);
  EXPECT_EQ(score(Function::kGsm8k, "so #### 72.", "72"), 0);
  EXPECT_EQ(score(Function::kGsm8k, "so #### 72.0", "72"), 0);
  EXPECT_EQ(score(Function::kGsm8k, "so 72", "72"), 0);
}

TEST(RewardTest, Gsm8kFlexibleTakesTheLastNumberAsItStands) {
  EXPECT_EQ(score(Function::kGsm8kFlexible, "3 and 72 apples", "72"), 1);
  EXPECT_EQ(score(Function::kGsm8kFlexible, "72 and 3", "72"), 0);
}

TEST(RewardTest, LastNumberComparesNumbers) {
  EXPECT_EQ(score(Function::kLastNumber, "It is 72.", "72.0"), 1);
  EXPECT_EQ(score(Function::kLastNumber, "It is $1,000.00.", "1000"), 1);
  EXPECT_EQ(score(Function::kLastNumber, "It is -72", "72"), 0);
  EXPECT_EQ(score(Function::kLastNumber, "It is", "72"), 0);
}

TEST(RewardTest, ExactMatchAllowsSpaceAroundAndOneFullStop) {
  EXPECT_EQ(score(Function::kExactMatch, "51", "51"), 1);
  EXPECT_EQ(score(Function::kExactMatch, " \n51.\t", "51"), 1);
  EXPECT_EQ(score(Function::kExactMatch, "Yes.", "Yes."), 1);
  EXPECT_EQ(score(Function::kExactMatch, "51..", "51"), 0);
  EXPECT_EQ(score(Function::kExactMatch, "51 .", "51"), 0);
  EXPECT_EQ(score(Function::kExactMatch, "51 35", "51"), 0);
  EXPECT_EQ(score(Function::kExactMatch, "", "51"), 0);
  EXPECT_EQ(score(Function::kExactMatch, ".", "51"), 0);
}

TEST(RewardTest, FormatScoreIsForWrongAnswersInTheRightForm) {
  for (const Function function : {Function::kGsm8k, Function::kGsm8kFlexible, Function::kLastNumber}) {
    const Config config{.function = function, .format_score = 0.1};
    EXPECT_EQ(result_of(config, "#### 72", "72").score, 1);
    EXPECT_EQ(result_of(config, "#### 71", "72").score, 0.1);
    EXPECT_EQ(result_of(config, "none", "72").score, 0);
  }
}

TEST(RewardTest, ExtraNumbersSayRightAndForm) {
  using Extra = std::vector<std::pair<std::string, double>>;
  const Config gsm8k{.function = Function::kGsm8k};
  EXPECT_EQ(result_of(gsm8k, "#### 72", "72").extra, (Extra{{"acc", 1}, {"format", 1}}));
  EXPECT_EQ(result_of(gsm8k, "#### 7", "72").extra, (Extra{{"acc", 0}, {"format", 1}}));
  EXPECT_EQ(result_of(gsm8k, "72", "72").extra, (Extra{{"acc", 0}, {"format", 0}}));
  EXPECT_EQ(result_of({.function = Function::kExactMatch}, "72", "72").extra, (Extra{{"acc", 1}}));
}

TEST(RewardTest, AutoChoosesByDataSource) {
  EXPECT_EQ(result_of({}, "#### 72", "72", "openai/gsm8k").score, 1);
  EXPECT_EQ(result_of({}, "72", "72", "openai/gsm8k").score, 0);
  EXPECT_EQ(result_of({}, "#### 72", "72", "rondo/step_sums").score, 1);
  EXPECT_EQ(result_of({}, "72", "72", "rondo/largest_of_three").score, 1);
}

TEST(RewardTest, AutoNamesTheFunctionsForAnUnknownSource) {
  const auto result = make_reward({}).value()({.data_source = "mine", .response = "1", .ground_truth = "1"});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(result.error().message(),
              testing::AllOf(HasSubstr("\"mine\""), HasSubstr("openai/gsm8k"),
                             HasSubstr("one of gsm8k, gsm8k_flexible, last_number, exact_match")));
}

TEST(RewardTest, LastNumberCannotScoreAGroundTruthThatIsNone) {
  const auto reward = make_reward({.function = Function::kLastNumber}).value();
  const auto result = reward({.response = "1", .ground_truth = "one"});
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message(), HasSubstr("\"one\" is not a number"));
}

TEST(RewardTest, GroundTruthsThatNothingMatchesAreFoundBeforehand) {
  const auto error_of = [](Function function, std::string_view truth) {
    const auto checked = check_ground_truth({.function = function}, "any", truth);
    return checked ? "no error" : checked.error().message();
  };
  EXPECT_EQ(error_of(Function::kGsm8k, "72"), "no error");
  EXPECT_EQ(error_of(Function::kGsm8k, "-1.5"), "no error");
  EXPECT_THAT(error_of(Function::kGsm8k, "1,000"), HasSubstr("without commas"));
  EXPECT_THAT(error_of(Function::kGsm8k, "6*12=72\n#### 72"),
              HasSubstr("under gsm8k: it must be a bare number"));
  EXPECT_EQ(error_of(Function::kGsm8kFlexible, "1,000"), "no error");
  EXPECT_THAT(error_of(Function::kGsm8kFlexible, "72 km"), HasSubstr("without units"));
  EXPECT_EQ(error_of(Function::kLastNumber, "1,000.0"), "no error");
  EXPECT_THAT(error_of(Function::kLastNumber, "one"), HasSubstr("one decimal number"));
  EXPECT_EQ(error_of(Function::kExactMatch, "a b."), "no error");
  EXPECT_THAT(error_of(Function::kExactMatch, "a\n"), HasSubstr("white space"));
  for (const auto& [function, name] : enum_names(Function{}))
    EXPECT_NE(error_of(function, ""), "no error") << name;
  EXPECT_TRUE(check_ground_truth({}, "openai/gsm8k", "72"));
}

TEST(RewardTest, AGroundTruthIsQuotedInPart) {
  const std::string solution(5000, 's');
  const auto checked = check_ground_truth({.function = Function::kGsm8k}, "", solution);
  ASSERT_FALSE(checked);
  EXPECT_LT(checked.error().message().size(), 300u);
}

TEST(RewardTest, ConfigRefusesAFormatScoreWithoutMeaning) {
  EXPECT_TRUE(Config{}.validate());
  EXPECT_TRUE((Config{.function = Function::kGsm8k, .format_score = -0.5}.validate()));
  for (const double score : {1.0, 2.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_FALSE((Config{.function = Function::kGsm8k, .format_score = score}.validate())) << score;
  }
  EXPECT_FALSE((Config{.function = Function::kExactMatch, .format_score = 0.1}.validate()));
  EXPECT_FALSE(make_reward({.format_score = 1}));
}

}  // namespace
}  // namespace rondo::reward
