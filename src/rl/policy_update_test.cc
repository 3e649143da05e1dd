#include "rl/policy_update.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "rl/tiny_run.h"
#include "testing/tiny_model.h"

namespace rondo::rl {
namespace {

using ::testing::HasSubstr;

ScoredGroup group_of(const std::vector<double>& scores) {
  ScoredGroup group;
  for (const double score : scores) {
    ScoredResponse sample;
    sample.reward.score = score;
    group.samples.push_back(sample);
  }
  return group;
}

TEST(PolicyUpdateTest, AdvantagesByGroup) {
  const std::vector<ScoredGroup> groups = {group_of({1, 0, 0, 1}), group_of({0.5, 0.5})};
  AlgorithmSection config;
  config.advantage.norm_adv_by_std = false;
  EXPECT_EQ(advantages_of(config, groups), (std::vector<std::vector<float>>{{0.5, -0.5, -0.5, 0.5}, {0, 0}}));
  config.advantage.norm_adv_by_std = true;
  const auto normed = advantages_of(config, groups);
  EXPECT_FLOAT_EQ(normed[0][0], static_cast<float>(0.5 / (std::sqrt(1.0 / 3) + 1e-6)));
  EXPECT_EQ(normed[1], (std::vector<float>{0, 0}));
}

// A session with a trainer, and groups that its engine rolled out; scores alternate within a group.
class RunTest : public ::testing::Test {
 protected:
  void open(const std::vector<std::string>& overrides = {}) {
    config_ = tiny_.config("run", overrides);
    session_ = Session::open(config_).value();
    trainer_ = train::Trainer::create(config_.train, *session_->model, *session_->weights, session_->context)
                   .value();
    update_ = PolicyUpdate::create(*session_, *trainer_).value();
    set_ = load_prompts(config_.data.train_files, config_.data, config_.model.path, *session_->tokenizer,
                        data::GroundTruth::kRequired)
               .value();
    roll_out();
  }

  void roll_out() {
    std::vector<const Prompt*> prompts;
    for (std::size_t i = 0; i < 3; ++i) prompts.push_back(&set_.prompts[i]);
    GenerationStats stats;
    groups_ = generate(*session_, {.prompts = prompts, .sampling = &config_.rollout.sampling, .step = 1}, {},
                       not_interrupted(), stats)
                  .value();
    for (ScoredGroup& group : groups_)
      for (std::size_t i = 0; i < group.samples.size(); ++i)
        group.samples[i].reward.score = static_cast<double>(i % 2);
  }

  Result<UpdateSummary> run(const std::atomic<bool>& interrupted = not_interrupted()) {
    return update_->run(groups_, advantages_of(config_.algorithm, groups_), 1, 4, interrupted);
  }

  std::string state() {
    const auto path = tiny_.folder() / "state";
    EXPECT_TRUE(trainer_->save_state(path));
    return read_file(path).value();
  }

  TinyRun tiny_;
  Config config_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<train::Trainer> trainer_;
  std::unique_ptr<PolicyUpdate> update_;
  PromptSet set_;
  std::vector<ScoredGroup> groups_;
};

TEST_F(RunTest, FirstUpdateHasRatioOneExactly) {
  open({"actor.ppo_epochs=2", "actor.kl_loss_coef=0.5"});
  const std::string before = state();
  const auto summary = run();
  ASSERT_TRUE(summary) << summary.error().message();
  EXPECT_EQ(summary->updates, 2);
  EXPECT_EQ(summary->units, 6);
  EXPECT_EQ(summary->skipped_units, 0);
  EXPECT_EQ(summary->first_update.max_ratio_error, 0.0F);
  EXPECT_EQ(summary->first_update.max_logprob_error, 0.0F);
  EXPECT_EQ(summary->first_update.weighted_kl, 0);
  EXPECT_GT(summary->report.weighted_kl, 0);  // of the second pass
  EXPECT_NE(summary->report.ppo_kl, 0);
  EXPECT_NE(state(), before);
}

TEST_F(RunTest, NormaliserCountsEveryTokenOrEverySequence) {
  double tokens = 0;
  open();
  for (const ScoredGroup& group : groups_)
    for (const ScoredResponse& sample : group.samples)
      tokens += static_cast<double>(sample.response.tokens.size());
  for (ScoredResponse& sample : groups_[0].samples) sample.reward.score = 1;  // skipped, but counted
  EXPECT_EQ(run()->normalizer, tokens);
  open({"actor.loss_agg_mode=seq-mean-token-mean"});
  EXPECT_EQ(run()->normalizer, 12);
  open({"actor.mini_batch_size=1", "actor.ppo_epochs=2"});
  EXPECT_EQ(run()->normalizer, tokens);  // of the last pass, summed over its mini-batches
}

TEST_F(RunTest, GroupsWithoutVarianceAreSkipped) {
  open({"actor.mini_batch_size=1"});
  for (ScoredResponse& sample : groups_[1].samples) sample.reward.score = 1;
  const auto summary = run();
  ASSERT_TRUE(summary) << summary.error().message();
  EXPECT_EQ(summary->skipped_units, 1);
  EXPECT_EQ(summary->units, 3);
  EXPECT_EQ(summary->updates, 2);
  EXPECT_EQ(trainer_->updates(), 2);
}

TEST_F(RunTest, WithoutAnyVarianceNothingChanges) {
  open();
  for (ScoredGroup& group : groups_)
    for (ScoredResponse& sample : group.samples) sample.reward.score = 0.5;
  const std::string before = state();
  const auto summary = run();
  ASSERT_TRUE(summary) << summary.error().message();
  EXPECT_EQ(summary->updates, 0);
  EXPECT_EQ(summary->skipped_units, 3);
  EXPECT_EQ(summary->grad_norm, 0);
  EXPECT_EQ(trainer_->updates(), 0);
  EXPECT_EQ(state(), before);
}

TEST_F(RunTest, InterruptionBeforeTheFirstUpdateChangesNothing) {
  open();
  const std::string before = state();
  const std::atomic<bool> interrupted{true};
  const auto summary = run(interrupted);
  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().code(), Code::kCancelled);
  EXPECT_EQ(state(), before);
  const auto again = run();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->first_update.max_logprob_error, 0.0F);
}

TEST_F(RunTest, LargeGroupsAreSplitIntoUnits) {
  open({"train.unit_tokens=40"});
  const auto summary = run();
  ASSERT_TRUE(summary) << summary.error().message();
  EXPECT_GT(summary->units, 3);
  EXPECT_EQ(summary->updates, 1);
  EXPECT_EQ(summary->first_update.max_logprob_error, 0.0F);
}

TEST_F(RunTest, AnotherReferenceGivesAKlAtOnce) {
  ASSERT_TRUE(testing::write_tiny_model_folder(tiny_.folder() / "reference", 2));
  open({"actor.kl_loss_coef=0.1", "model.ref_path=" + (tiny_.folder() / "reference").string()});
  EXPECT_GT(run()->first_update.weighted_kl, 0);
}

TEST_F(RunTest, MissingReferenceIsNamed) {
  open();
  session_->config.actor.loss.kl_loss_coef = 0.1F;
  session_->config.model.ref_path = "/nowhere";
  const auto update = PolicyUpdate::create(*session_, *trainer_);
  ASSERT_FALSE(update);
  EXPECT_THAT(update.error().message(), HasSubstr("loading the reference model"));
  session_->config.actor.loss.kl_loss_coef = 0;
  EXPECT_TRUE(PolicyUpdate::create(*session_, *trainer_));  // not loaded where nothing needs it
}

TEST_F(RunTest, EngineSeesTheNewWeights) {
  open();
  const auto before = groups_[0].samples[0].response.logprobs;
  ASSERT_TRUE(run());
  session_->inference->new_policy_version();
  roll_out();
  EXPECT_NE(groups_[0].samples[0].response.logprobs, before);
  EXPECT_EQ(run()->first_update.max_logprob_error, 0.0F);
}

}  // namespace
}  // namespace rondo::rl
