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

  Result<rollout::StepCost> load() {
    return load_or_measure_step_cost(config_, *session_->model, session_->context.table->name, 1, *engine_);
  }
  std::filesystem::path file() const {
    return step_profile_file(config_, session_->model->spec(), session_->context.table->name, 1);
  }

  TinyRun tiny_;
  Config config_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<engine::Engine> engine_;
};

TEST_F(StepProfileTest, CoversTheAxesAndLeavesTheEngineIdle) {
  const auto cost = measure_step_cost(*engine_, session_->model->spec().vocab, 4, 8, 200);
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

TEST_F(StepProfileTest, OtherThreadsHaveAnotherProfile) {
  EXPECT_NE(step_profile_file(config_, session_->model->spec(), "avx2", 1),
            step_profile_file(config_, session_->model->spec(), "avx2", 2));
}

}  // namespace
}  // namespace rondo::rl
