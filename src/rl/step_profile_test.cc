#include "rl/step_profile.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "rl/session.h"
#include "rl/tiny_run.h"

namespace rondo::rl {
namespace {

class StepProfileTest : public ::testing::Test {
 protected:
  StepProfileTest()
      : config_(tiny_.config("run", {"rollout.spec.profile_folder=" + (tiny_.folder() / "profiles").string(),
                                     "rollout.spec.max_gamma=4"})),
        session_(Session::open(config_).value()),
        engine_(
            engine::Engine::create(config_.engine, *session_->model, nullptr, session_->context).value()) {}

  Result<rollout::StepCost> load() { return load_or_measure_step_cost(key(), *engine_); }
  StepProfileKey key() const { return {config_, *session_->model, session_->context.table->name, 1}; }
  std::filesystem::path file() const { return step_profile_file(key(), engine_->num_blocks()); }

  TinyRun tiny_;
  Config config_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<engine::Engine> engine_;
};

TEST_F(StepProfileTest, CoversTheAxesAndLeavesTheEngineIdle) {
  const auto cost = measure_step_cost(*engine_, session_->model->spec().vocab, {8, 200, 4});
  ASSERT_TRUE(cost) << cost.error().message();
  EXPECT_EQ(cost->axes().batches, (std::vector<double>{1, 4, 8}));
  EXPECT_EQ(cost->axes().gammas, (std::vector<double>{0, 1, 3, 4}));
  EXPECT_EQ(cost->axes().contexts, (std::vector<double>{64, 200}));
  for (const double seconds : cost->values()) EXPECT_GT(seconds, 0);
  EXPECT_TRUE(engine_->idle());
  EXPECT_EQ(engine_->stats().preemptions, 0);
  EXPECT_GT(engine_->stats().drafted_tokens, 0);
}

TEST_F(StepProfileTest, IsMeasuredOnceAndThenRead) {
  const auto measured = load();
  ASSERT_TRUE(measured) << measured.error().message();
  ASSERT_TRUE(std::filesystem::exists(file()));
  const std::int64_t steps = engine_->stats().steps;
  const auto read = load();
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, *measured);
  EXPECT_EQ(engine_->stats().steps, steps);
}

TEST_F(StepProfileTest, ADamagedFileIsMeasuredAnew) {
  ASSERT_TRUE(load());
  std::ofstream(file()) << "{\"batches\": [1";
  const std::int64_t steps = engine_->stats().steps;
  ASSERT_TRUE(load());
  EXPECT_GT(engine_->stats().steps, steps);
  ASSERT_TRUE(rollout::parse_step_cost(*read_file(file())));
}

TEST_F(StepProfileTest, AFolderThatCannotBeWrittenCostsTheFileAlone) {
  config_.rollout.spec.profile_folder = "/proc/no/such/folder";
  EXPECT_TRUE(load());
}

TEST_F(StepProfileTest, WhatChangesTheTimesHasAnotherProfile) {
  const auto file_of = [this](const std::string& target, int threads, std::int32_t num_blocks) {
    return step_profile_file({config_, *session_->model, target, threads}, num_blocks);
  };
  const auto one = file_of("avx2", 1, 1000);
  EXPECT_EQ(one, file_of("avx2", 1, 2000)) << "the pool holds all batches either way";
  EXPECT_NE(one, file_of("avx2", 2, 1000));
  EXPECT_NE(one, file_of("portable", 1, 1000));
  EXPECT_NE(one, file_of("avx2", 1, 20)) << "such a pool holds small batches only";
  config_.rollout.spec.length.max_gamma = 2;
  EXPECT_NE(one, file_of("avx2", 1, 1000));
}

TEST_F(StepProfileTest, AbsurdNumbersAreMeasuredAnew) {
  const auto measured = load();
  ASSERT_TRUE(measured);
  std::string text = *read_file(file());
  text.replace(text.rfind('[') + 1, 0, "1e308,");
  text.erase(text.rfind(','), text.rfind(']') - text.rfind(','));
  std::ofstream(file()) << text;
  const std::int64_t steps = engine_->stats().steps;
  ASSERT_TRUE(load());
  EXPECT_GT(engine_->stats().steps, steps);
}

TEST_F(StepProfileTest, AnInterruptedMeasurementLeavesTheOldFileAndAnIdleEngine) {
  ASSERT_TRUE(load());
  const std::string before = *read_file(file());
  const std::atomic<bool> interrupted{true};
  const auto renewed = renew_step_cost(key(), *engine_, &interrupted);
  ASSERT_FALSE(renewed.has_value());
  EXPECT_EQ(renewed.error().code(), Code::kCancelled);
  EXPECT_EQ(*read_file(file()), before);
  EXPECT_TRUE(engine_->idle());
  ASSERT_TRUE(renew_step_cost(key(), *engine_));
  EXPECT_TRUE(rollout::parse_step_cost(*read_file(file())));
}

}  // namespace
}  // namespace rondo::rl
