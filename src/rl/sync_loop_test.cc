#include "rl/sync_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "rl/tiny_run.h"

namespace rondo::rl {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What a loop told its observer.
struct Heard {
  std::string messages;
  std::vector<std::int64_t> steps;
  std::vector<std::string> phases;
};

// Runs with an observer that sets `interrupt` after step `stop_after`.
Result<LoopSummary> run_observed(const Config& config, Heard& heard, std::atomic<bool>& interrupt,
                                 std::int64_t stop_after = 0) {
  const SteadyClock clock;
  LoopObserver observer;
  observer.message = [&](std::string_view text) { heard.messages += text; };
  observer.step_done = [&](std::int64_t step, std::int64_t, const metrics::StepRecord&,
                           std::optional<double>) {
    heard.steps.push_back(step);
    if (step == stop_after) interrupt = true;
  };
  observer.progress = [&](std::string_view phase, std::int64_t, std::int64_t) {
    if (heard.phases.empty() || heard.phases.back() != phase) heard.phases.emplace_back(phase);
  };
  RONDO_ASSIGN(const auto loop, SyncLoop::create(config, clock, observer, interrupt));
  return loop->run();
}

class SyncLoopTest : public ::testing::Test {
 protected:
  std::string create_error(const std::vector<std::string>& overrides) {
    const auto summary = train(tiny_.config("run", overrides));
    return summary ? "no error" : summary.error().message();
  }
  TinyRun tiny_;
};

TEST_F(SyncLoopTest, TellsWhatHappens) {
  Heard heard;
  std::atomic<bool> interrupt{false};
  const auto summary = run_observed(tiny_.config("run", {"trainer.test_freq=0"}), heard, interrupt);
  ASSERT_TRUE(summary) << summary.error().message();
  EXPECT_THAT(heard.steps, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(heard.phases, ElementsAre("evaluation", "rollout", "evaluation"));
  EXPECT_THAT(heard.messages, HasSubstr("reward of the ground truth"));
  EXPECT_THAT(heard.messages, HasSubstr("held-out score before training"));
  EXPECT_THAT(heard.messages, HasSubstr("log-prob difference engine/trainer"));
  EXPECT_THAT(heard.messages, ::testing::Not(HasSubstr("please report it")));
  EXPECT_EQ(summary->last_step, 4);
  EXPECT_FALSE(summary->interrupted);
  EXPECT_TRUE(summary->score_before);
  EXPECT_TRUE(summary->score_after);
  EXPECT_EQ(summary->model_folder, (tiny_.folder() / "run/checkpoints/global_step_4").string());
  EXPECT_GT(summary->peak_memory_bytes, 0);
  EXPECT_LT(summary->peak_memory_bytes, std::int64_t{1} << 30);
}

TEST_F(SyncLoopTest, InterruptedRunSavesTheLastStepAndGoesOnTheSame) {
  const auto whole = train(tiny_.config("whole"));
  ASSERT_TRUE(whole) << whole.error().message();
  for (const int stop_after : {1, 2, 3}) {
    const Config config = tiny_.config("cut" + std::to_string(stop_after));
    Heard first, second;
    std::atomic<bool> interrupt{false};
    const auto cut = run_observed(config, first, interrupt, stop_after);
    ASSERT_TRUE(cut) << cut.error().message();
    EXPECT_TRUE(cut->interrupted);
    EXPECT_EQ(cut->last_step, stop_after);
    EXPECT_FALSE(cut->score_after);
    interrupt = false;
    const auto rest = run_observed(config, second, interrupt);
    ASSERT_TRUE(rest) << rest.error().message();
    EXPECT_EQ(second.steps.front(), stop_after + 1);
    EXPECT_THAT(second.messages, HasSubstr("resuming after step " + std::to_string(stop_after)));
    ASSERT_TRUE(rest->score_before);
    EXPECT_DOUBLE_EQ(*rest->score_before, *whole->score_before);
    const Outcome expected = outcome_of(tiny_.folder() / "whole"),
                  actual = outcome_of(config.trainer.run_dir);
    EXPECT_EQ(actual.metrics, expected.metrics);
    EXPECT_TRUE(actual.rollouts == expected.rollouts);
    EXPECT_TRUE(actual.model == expected.model);
  }
}

TEST_F(SyncLoopTest, InterruptedBeforeAnyStepSavesNothing) {
  const std::atomic<bool> interrupt{true};
  const auto summary = train(tiny_.config("run"), interrupt);
  ASSERT_TRUE(summary) << summary.error().message();
  EXPECT_TRUE(summary->interrupted);
  EXPECT_EQ(summary->last_step, 0);
  EXPECT_EQ(summary->model_folder, "");
}

TEST_F(SyncLoopTest, MoreStepsContinueAFinishedRun) {
  ASSERT_TRUE(train(tiny_.config("run", {"trainer.total_steps=2", "trainer.test_freq=0"})));
  const auto summary = train(tiny_.config("run", {"trainer.test_freq=0"}));
  ASSERT_TRUE(summary) << summary.error().message();
  ASSERT_TRUE(train(tiny_.config("whole", {"trainer.test_freq=0"})));
  const Outcome grown = outcome_of(tiny_.folder() / "run"), whole = outcome_of(tiny_.folder() / "whole");
  EXPECT_TRUE(grown.rollouts == whole.rollouts);
  EXPECT_TRUE(grown.model == whole.model);
}

TEST_F(SyncLoopTest, HistoryOfEarlierEpochsChangesNothing) {
  const std::string profiles = "rollout.spec.profile_folder=" + (tiny_.folder() / "profiles").string();
  const std::vector<std::string> plain = {"trainer.total_steps=6", "rollout.policy=seer_plus"};
  std::vector<std::string> with = plain;
  for (const char* more : {"rollout.history.enabled=true", "rollout.history.responses=3",
                           "rollout.spec.enabled=true", "rollout.instances=2"}) {
    with.emplace_back(more);
  }
  with.push_back(profiles);
  ASSERT_TRUE(train(tiny_.config("plain", plain)));
  ASSERT_TRUE(train(tiny_.config("with", with)));
  const Outcome expected = outcome_of(tiny_.folder() / "plain"), actual = outcome_of(tiny_.folder() / "with");
  EXPECT_EQ(actual.metrics, expected.metrics);
  EXPECT_TRUE(actual.rollouts == expected.rollouts);
  EXPECT_TRUE(actual.model == expected.model);
}

TEST_F(SyncLoopTest, ResumeRemembersLengthsButCanDoWithout) {
  const auto config = [this](int steps) {
    return tiny_.config("run", {"trainer.total_steps=" + std::to_string(steps), "rollout.policy=seer_plus"});
  };
  const auto learned = [this](int step) {
    const auto folder = tiny_.folder() / "run/checkpoints" / ("global_step_" + std::to_string(step));
    return RunFolder::load_length_prior({.folder = folder, .global_step = step});
  };
  const auto file = tiny_.folder() / "run/checkpoints/global_step_1/trainer/length_prior.json";
  ASSERT_TRUE(train(tiny_.config("whole")));
  ASSERT_TRUE(train(config(1)));
  EXPECT_EQ(learned(1).weight, 3);  // groups of a step
  std::filesystem::remove(file);
  ASSERT_TRUE(train(config(2)));
  EXPECT_EQ(learned(2).weight, 3) << "an old checkpoint: learned anew";
  ASSERT_TRUE(train(config(3)));
  EXPECT_GT(learned(3).weight, 3);
  tiny_.write("run/checkpoints/global_step_3/trainer/length_prior.json", "{}");
  ASSERT_TRUE(train(config(4)));
  EXPECT_EQ(learned(4).weight, 3) << "damaged: learned anew";
  Outcome expected = outcome_of(tiny_.folder() / "whole"), actual = outcome_of(tiny_.folder() / "run");
  for (Outcome* outcome : {&expected, &actual}) outcome->model.erase("trainer/length_prior.json");
  EXPECT_TRUE(actual.rollouts == expected.rollouts);
  EXPECT_TRUE(actual.model == expected.model);
}

TEST_F(SyncLoopTest, ResumeTellsOfOtherPromptsUnderTheSamePath) {
  const auto told = [this](int steps) {
    testing::internal::CaptureStderr();
    const auto summary = train(
        tiny_.config("run", {"trainer.total_steps=" + std::to_string(steps), "trainer.max_ckpt_to_keep=0"}));
    EXPECT_TRUE(summary) << summary.error().message();
    return testing::internal::GetCapturedStderr();
  };
  const std::string rows = read_file(tiny_.folder() / "train.jsonl").value();
  EXPECT_EQ(told(1), "");
  EXPECT_EQ(told(2), "") << "the same prompts";
  tiny_.write("train.jsonl", rows + R"({"prompt": "new", "label": "6"})");
  EXPECT_EQ(told(2), "") << "nothing is left to do";
  EXPECT_THAT(told(3), HasSubstr("6 prompts -> 7 prompts; the run goes on with the new ones at step 3"));
  EXPECT_EQ(told(4), "") << "told once: the newest checkpoint was trained on these";
  std::string relabelled = rows;
  relabelled.replace(relabelled.find(R"("label":"0")"), 11, R"("label":"8")");
  tiny_.write("train.jsonl", relabelled);
  tiny_.write("run/checkpoints/latest", "global_step_2\n");
  EXPECT_THAT(told(3), HasSubstr("6 prompts as before, with other"));
  std::filesystem::remove(tiny_.folder() / "run/checkpoints/global_step_3/trainer/train_prompts.json");
  tiny_.write("train.jsonl", rows);
  EXPECT_EQ(told(4), "") << "an old checkpoint";
}

TEST_F(SyncLoopTest, FewerStepsThanAreDoneAreSaidSo) {
  ASSERT_TRUE(train(tiny_.config("run", {"trainer.total_steps=2"})));
  Heard heard;
  std::atomic<bool> interrupt{false};
  const auto summary = run_observed(tiny_.config("run", {"trainer.total_steps=1"}), heard, interrupt);
  ASSERT_TRUE(summary) << summary.error().message();
  EXPECT_THAT(heard.messages, HasSubstr("the run has 2 steps and was to have 1"));
  EXPECT_TRUE(heard.steps.empty());
}

TEST_F(SyncLoopTest, EpochsGiveTheStepsWhereTheConfigGivesNone) {
  const auto summary = train(tiny_.config("run", {"trainer.total_steps=0", "trainer.total_epochs=3"}));
  ASSERT_TRUE(summary) << summary.error().message();
  EXPECT_EQ(summary->last_step, 6);  // 6 prompts, 3 a step
}

TEST_F(SyncLoopTest, RefusesARunWithoutSteps) {
  EXPECT_THAT(create_error({"trainer.total_steps=0", "data.train_batch_size=7"}),
              HasSubstr("6 prompts make no batch of data.train_batch_size = 7"));
}

TEST_F(SyncLoopTest, RefusesAGroundTruthThatNoResponseCanMatch) {
  const std::string rows = tiny_.write("words.jsonl", R"({"prompt": "a", "label": "seven"})");
  EXPECT_THAT(create_error({"data.val_files=" + rows}), HasSubstr("no response can match the ground truth"));
}

TEST_F(SyncLoopTest, ErrorsNameTheListOfFiles) {
  EXPECT_THAT(create_error({"data.train_files=/nowhere.jsonl"}), HasSubstr("data.train_files: "));
  EXPECT_THAT(create_error({"data.val_files=/nowhere.jsonl"}), HasSubstr("data.val_files: "));
}

TEST_F(SyncLoopTest, WithoutVarianceStepsAdvanceAndWeightsStay) {
  const Config config = tiny_.config("run", {"reward.format_score=0", "reward.function=exact_match"});
  ASSERT_TRUE(train(config));
  const Outcome outcome = outcome_of(config.trainer.run_dir);
  std::vector<double> updates, flat;
  for (const std::string& line : outcome.metrics) {
    if (metric_of(line, "step") == 0.0) continue;
    updates.push_back(metric_of(line, "actor/updates").value());
    flat.push_back(metric_of(line, "frac_reward_zero_std").value());
  }
  ASSERT_EQ(updates.size(), 4u);
  EXPECT_THAT(updates, Each(0.0));
  EXPECT_THAT(flat, Each(1.0));
  const Config untrained = tiny_.config("untrained", {"actor.optim.lr=0", "actor.optim.weight_decay=0"});
  ASSERT_TRUE(train(untrained));
  EXPECT_TRUE(outcome.model.at("model.safetensors") ==
              outcome_of(untrained.trainer.run_dir).model.at("model.safetensors"));
}

}  // namespace
}  // namespace rondo::rl
