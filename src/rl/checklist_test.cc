#include "rl/checklist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace rondo::rl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

PromptSet prompts_with(const std::vector<std::string>& truths) {
  PromptSet set;
  for (const std::string& truth : truths) {
    Prompt prompt;
    prompt.row.ground_truth = truth;
    set.prompts.push_back(prompt);
  }
  return set;
}

std::vector<CheckItem> reward_items(const reward::RewardFunction& reward) {
  return check_reward(prompts_with({"1", "2"}), reward).value();
}

TEST(ChecklistTest, RuleRewardsAcceptTheirOwnAnswers) {
  for (const auto function : {reward::Function::kGsm8k, reward::Function::kGsm8kFlexible,
                              reward::Function::kLastNumber, reward::Function::kExactMatch}) {
    const auto items = reward_items(reward::make_reward({.function = function}).value());
    ASSERT_EQ(items.size(), 2u);
    EXPECT_TRUE(items[0].ok) << static_cast<int>(function);
    EXPECT_EQ(items[0].value, "1");
    EXPECT_TRUE(items[1].ok) << static_cast<int>(function);
    EXPECT_EQ(items[1].value, "0");
  }
}

TEST(ChecklistTest, RewardThatRefusesTheTruthOrPaysForSilenceIsShown) {
  const auto silent = reward_items([](const reward::RewardInput& input) -> Result<reward::RewardResult> {
    return reward::RewardResult{.score = input.response.empty() ? 0.5 : 0.0, .extra = {}};
  });
  EXPECT_FALSE(silent[0].ok);
  EXPECT_EQ(silent[0].value, "0");
  EXPECT_FALSE(silent[1].ok);
  EXPECT_EQ(silent[1].value, "0.5");
}

TEST(ChecklistTest, FailedRewardIsPassedOn) {
  const auto items =
      check_reward(prompts_with({"1"}), [](const reward::RewardInput&) -> Result<reward::RewardResult> {
        return fail(Code::kInvalidArgument, "no rule");
      });
  ASSERT_FALSE(items);
  EXPECT_THAT(items.error().message(), HasSubstr("no rule"));
}

class FirstStepTest : public ::testing::Test {
 protected:
  // Groups of two with these scores; responses of three tokens that end by `reason`.
  void add_group(double a, double b, batch::FinishReason reason = batch::FinishReason::kStopToken) {
    ScoredGroup group;
    for (const double score : {a, b}) {
      ScoredResponse sample;
      sample.response.tokens = {1, 2, 3};
      sample.response.reason = reason;
      sample.reward.score = score;
      group.samples.push_back(sample);
    }
    groups_.push_back(group);
  }

  const CheckItem* find(std::string_view name) {
    items_ = check_first_step(config_, groups_, summary_);
    for (const CheckItem& item : items_)
      if (item.name == name) return &item;
    return nullptr;
  }

  Config config_;
  std::vector<ScoredGroup> groups_;
  UpdateSummary summary_{.report = {}, .first_update = {}, .grad_norm = 1.5, .updates = 1};
  std::vector<CheckItem> items_;
};

TEST_F(FirstStepTest, GoodStepIsOkThroughout) {
  add_group(1, 0);
  add_group(1, 1);
  ASSERT_TRUE(find("log-prob difference engine/trainer"));
  for (const CheckItem& item : items_) EXPECT_TRUE(item.ok) << item.name;
  EXPECT_EQ(find("groups without reward variance")->value, "0.5");
  EXPECT_EQ(find("response tokens per group")->value, "6");
  EXPECT_EQ(find("gradient norm")->value, "1.5");
  EXPECT_EQ(find("KL to the reference"), nullptr);
}

TEST_F(FirstStepTest, DisagreementOfEngineAndTrainerIsShown) {
  add_group(1, 0);
  summary_.first_update.max_logprob_error = 1e-7F;
  EXPECT_FALSE(find("log-prob difference engine/trainer")->ok);
  EXPECT_TRUE(find("largest |ratio - 1|")->ok);
  summary_.first_update.max_ratio_error = 1e-7F;
  EXPECT_FALSE(find("largest |ratio - 1|")->ok);
}

TEST_F(FirstStepTest, KlIsZeroWhereTheReferenceIsThePolicy) {
  add_group(1, 0);
  config_.actor.loss.kl_loss_coef = 0.1F;
  summary_.first_update.weighted_kl = 1e-9;
  EXPECT_FALSE(find("KL to the reference")->ok);
  summary_.first_update.weighted_kl = 0;
  EXPECT_TRUE(find("KL to the reference")->ok);
  config_.model.ref_path = "another";
  EXPECT_EQ(find("KL to the reference"), nullptr);
}

TEST_F(FirstStepTest, FlatGroupsAndCutResponsesAreShown) {
  add_group(0, 0, batch::FinishReason::kLength);
  add_group(1, 1);
  add_group(1, 0);
  EXPECT_FALSE(find("groups without reward variance")->ok);
  EXPECT_FALSE(find("responses cut at the limit")->ok);
  EXPECT_EQ(find("responses cut at the limit")->hint, "raise data.max_response_length");
}

TEST_F(FirstStepTest, WithoutAnUpdateThereIsNoRatio) {
  add_group(0, 0);
  summary_.updates = 0;
  EXPECT_EQ(find("largest |ratio - 1|"), nullptr);
  EXPECT_FALSE(find("groups without reward variance")->ok);
}

TEST_F(FirstStepTest, GradientThatIsNoNumberIsShown) {
  add_group(1, 0);
  summary_.grad_norm = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(find("gradient norm")->ok);
}

TEST(ChecklistTest, HintStandsOnlyWhereItIsNeeded) {
  const std::vector<CheckItem> items = {{"first", "0", true, "hint one"},
                                        {"second", "0.25", false, "hint two"}};
  const std::string table = format_checklist(items);
  EXPECT_THAT(table, HasSubstr("first-step check"));
  EXPECT_THAT(table, Not(HasSubstr("hint one")));
  EXPECT_THAT(table, HasSubstr("hint two"));
  const std::string second = table.substr(table.find("second"));
  EXPECT_THAT(second, HasSubstr("0.25"));
  EXPECT_THAT(second, HasSubstr("LOOK"));
  EXPECT_THAT(table.substr(0, table.find("second")), Not(HasSubstr("LOOK")));
}

}  // namespace
}  // namespace rondo::rl
