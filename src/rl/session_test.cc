#include "rl/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rl/tiny_run.h"

namespace rondo::rl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SessionTest : public ::testing::Test {
 protected:
  std::string error_of(const std::vector<std::string>& overrides) {
    const auto session = Session::open(tiny_.config("run", overrides));
    return session ? "no error" : session.error().message();
  }
  TinyRun tiny_;
};

TEST_F(SessionTest, OpensEverythingThatTheConfigNames) {
  const auto session = Session::open(tiny_.config("run", {"rollout.stop=[\"end\"]", "trainer.threads=2"}));
  ASSERT_TRUE(session) << session.error().message();
  EXPECT_EQ((*session)->pool->num_threads(), 2);
  EXPECT_EQ((*session)->model->spec().dtype, kernels::DType::kF16);
  EXPECT_TRUE((*session)->inference->engine().idle());
  EXPECT_EQ((*session)->stop->tokens, (*session)->model_config.eos_token_ids);
  EXPECT_EQ((*session)->stop->strings, std::vector<std::string>{"end"});
}

TEST_F(SessionTest, IgnoreEosLeavesTheStringsAlone) {
  const auto session =
      Session::open(tiny_.config("run", {"rollout.stop=[\"end\"]", "rollout.ignore_eos=true"}));
  ASSERT_TRUE(session) << session.error().message();
  EXPECT_TRUE((*session)->stop->tokens.empty());
  EXPECT_EQ((*session)->stop->strings.size(), 1u);
}

TEST_F(SessionTest, SequencesFitTheModelAndThePool) {
  EXPECT_THAT(error_of({"data.max_prompt_length=500"}),
              HasSubstr("= 516 exceeds the model's max_position_embeddings = 512"));
  EXPECT_THAT(error_of({"engine.kv_memory=16KiB"}),
              AllOf(HasSubstr("engine.kv_memory = 16KiB holds 128 tokens, but one sequence may have 144"),
                    HasSubstr("at least 24KiB")));
  EXPECT_EQ(error_of({"engine.kv_memory=24KiB"}), "no error");
  EXPECT_THAT(error_of({"engine.kv_memory=1KiB"}), HasSubstr("holds no KV block; one takes 8KiB"));
}

TEST_F(SessionTest, UnknownKernelTargetNamesTheKey) {
  EXPECT_THAT(error_of({"trainer.kernel_target=avx1024"}),
              AllOf(HasSubstr("trainer.kernel_target"), HasSubstr("portable")));
}

TEST_F(SessionTest, MissingFolderIsNamed) {
  EXPECT_THAT(error_of({"model.path=/nowhere/at/all"}), HasSubstr("/nowhere/at/all"));
}

TEST_F(SessionTest, ThreadsAreOnePerUsableCoreUnlessGiven) {
  EXPECT_EQ(resolve_threads(3), 3);
  EXPECT_GE(resolve_threads(0), 1);
}

TEST_F(SessionTest, RefusesKvBudgetsBeyondTheMachine) {
  EXPECT_NE(error_of({"rollout.host_kv_memory=8000TB"}).find("rollout.host_kv_memory"), std::string::npos);
  EXPECT_NE(error_of({"rollout.disk_kv_memory=8000TB"}).find("rollout.disk_kv_folder"), std::string::npos);
  EXPECT_NE(error_of({"rollout.disk_kv_memory=1MB", "rollout.disk_kv_folder=/proc/none"}).find("/proc/none"),
            std::string::npos);
}

TEST_F(SessionTest, AnInterruptionEndsTheMeasurementOfSteps) {
  const std::atomic<bool> interrupted{true};
  const auto session = Session::open(
      tiny_.config("run", {"rollout.spec.enabled=true",
                           "rollout.spec.profile_folder=" + (tiny_.folder() / "none").string()}),
      &interrupted);
  ASSERT_FALSE(session.has_value());
  EXPECT_EQ(session.error().code(), Code::kCancelled);
}

}  // namespace
}  // namespace rondo::rl
