#include "rl/evaluation.h"

#include <gtest/gtest.h>

#include "metrics/json_row.h"
#include "rl/tiny_run.h"

namespace rondo::rl {
namespace {

TEST(EvaluationTest, ReportsUnderVerlsNames) {
  EvaluationReport report;
  report.sources["openai/gsm8k"] = {.responses = 4, .score_sum = 3};
  report.sources[""] = {.responses = 2, .score_sum = 0.5};
  report.responses = 6;
  report.score_sum = 3.5;
  report.truncated = 3;
  report.mean_length = 7.25;
  metrics::StepRecord record;
  report.add_to(record, 2);
  EXPECT_EQ(record.find("val-core/openai/gsm8k/reward/mean@2"), 0.75);
  EXPECT_EQ(record.find("val-core/unknown/reward/mean@2"), 0.25);
  EXPECT_EQ(record.find("val-aux/response_length/mean"), 7.25);
  EXPECT_EQ(record.find("val-aux/response_length/clip_ratio"), 0.5);
  EXPECT_EQ(record.entries().size(), 4u);
  EXPECT_DOUBLE_EQ(report.mean_score(), 3.5 / 6);
  EXPECT_EQ(EvaluationReport{}.mean_score(), 0);
}

class EvaluateTest : public ::testing::Test {
 protected:
  EvaluateTest()
      : config_(
            tiny_.config("run", {"rollout.val.n=3", "rollout.val.temperature=1", "rollout.ignore_eos=true"})),
        session_(Session::open(config_).value()),
        prompts_(load_prompts(config_.data.train_files, config_.data, config_.model.path,
                              *session_->tokenizer, data::GroundTruth::kRequired)
                     .value()) {}
  TinyRun tiny_;
  Config config_;
  std::unique_ptr<Session> session_;
  PromptSet prompts_;
};

// A reward that tells the sources apart.
Result<reward::RewardResult> source_reward(const reward::RewardInput& input) {
  return reward::RewardResult{.score = input.data_source == "odd" ? 1.0 : 0.25, .extra = {}};
}

TEST_F(EvaluateTest, SumsBySourceOverAllResponses) {
  const auto report = evaluate(*session_, prompts_, source_reward, 0, not_interrupted());
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->responses, 18);
  ASSERT_EQ(report->sources.size(), 2u);
  EXPECT_EQ(report->sources.at("odd").responses, 9);
  EXPECT_EQ(report->sources.at("odd").score_sum, 9);
  EXPECT_EQ(report->sources.at("even").score_sum, 2.25);
  EXPECT_EQ(report->mean_score(), 0.625);
  EXPECT_EQ(report->truncated, 18);  // nothing but the limit ends a response here
  EXPECT_EQ(report->mean_length, 16);
  metrics::StepRecord record;
  report->add_to(record, 3);
  const std::string line = metrics::json_row(0, record);
  EXPECT_EQ(logged_mean_score(line, prompts_, 3), 0.625);
  EXPECT_EQ(logged_mean_score(line, prompts_, 2), std::nullopt) << "another number of responses";
  prompts_.prompts.front().row.data_source = "another";
  EXPECT_EQ(logged_mean_score(line, prompts_, 3), std::nullopt);
  EXPECT_EQ(logged_mean_score("{", prompts_, 3), std::nullopt);
}

TEST_F(EvaluateTest, StepKeysTheSamples) {
  const reward::RewardFunction text_sum =
      [](const reward::RewardInput& input) -> Result<reward::RewardResult> {
    double sum = 0;
    for (const char c : input.response) sum += static_cast<unsigned char>(c);
    return reward::RewardResult{.score = sum, .extra = {}};
  };
  const auto score = [&](std::uint32_t step) {
    return evaluate(*session_, prompts_, text_sum, step, not_interrupted()).value().score_sum;
  };
  const double first = score(1);
  EXPECT_NE(score(2), first);
  EXPECT_EQ(score(1), first);
}

TEST_F(EvaluateTest, Interrupted) {
  const std::atomic<bool> interrupted{true};
  const auto report = evaluate(*session_, prompts_, source_reward, 0, interrupted);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), Code::kCancelled);
  EXPECT_TRUE(session_->inference->engine().idle());
}

}  // namespace
}  // namespace rondo::rl
