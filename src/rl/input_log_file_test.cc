// A run's recorded inputs: real instances and threads, replayed without them.
#include "rl/input_log_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "rl/tiny_run.h"

namespace rondo::rl {
namespace {

using ::testing::HasSubstr;

class InputLogFileTest : public ::testing::Test {
 protected:
  // Two instances whose KV pools hold a few responses each, so that chunks wait, move and are evicted.
  Config config(const std::string& input_log) const {
    return tiny_.config("run", {"rollout.instances=2", "rollout.policy=seer_plus", "rollout.chunk_tokens=4",
                                "rollout.move_threshold=0", "engine.kv_memory=128KiB",
                                "data.max_response_length=40", "rollout.input_log=" + input_log});
  }

  static Result<void> replay_on(const Config& config, std::span<const rollout::TimedInput> inputs) {
    const auto session = Session::open(config).value();
    const auto scheduler =
        rollout::Scheduler::create(config.rollout.schedule, session->inference->scheduler_limits()).value();
    return rollout::replay(inputs, {.scheduler = scheduler.get()});
  }

  std::string path() const { return (tiny_.folder() / "logs" / "inputs").string(); }

  TinyRun tiny_;
};

TEST_F(InputLogFileTest, ARunReplaysToTheSameDecisions) {
  Config config = this->config(path());
  ASSERT_TRUE(train(config));
  const auto inputs = rollout::parse_input_log(read_file(path()).value());
  ASSERT_TRUE(inputs) << inputs.error().message();
  const auto count = [&](auto is) { return std::ranges::count_if(*inputs, is); };
  // Four steps of twelve responses, and three evaluations of two.
  EXPECT_EQ(count([](const auto& x) { return std::holds_alternative<rollout::RequestFinished>(x.input); }),
            48 + 6);
  EXPECT_EQ(count([](const auto& x) { return std::holds_alternative<rollout::VersionChanged>(x.input); }), 4);
  EXPECT_GT(count([](const auto& x) { return std::holds_alternative<rollout::ChunkDone>(x.input); }), 100);
  EXPECT_TRUE(std::ranges::is_sorted(*inputs, {}, &rollout::TimedInput::time_ns));

  config.rollout.input_log.clear();
  const auto same = replay_on(config, *inputs);
  EXPECT_TRUE(same) << same.error().message();
  config.rollout.schedule.policy = rollout::Policy::kFifo;
  EXPECT_FALSE(replay_on(config, *inputs));
}

TEST_F(InputLogFileTest, AFullDiskEndsTheRecordingAlone) {
  EXPECT_TRUE(train(config("/dev/full")));
}

TEST_F(InputLogFileTest, AFileThatCannotBeMadeIsAnErrorOfTheSetting) {
  const auto summary = train(config("/proc/none/inputs"));
  ASSERT_FALSE(summary);
  EXPECT_THAT(summary.error().message(), HasSubstr("rollout.input_log"));
}

TEST_F(InputLogFileTest, FlushedLinesAreInTheFile) {
  const auto log = InputLogFile::create(path()).value();
  log->add({.time_ns = 3, .input = rollout::GoalSet{2}});
  EXPECT_EQ(read_file(path()).value(), "");
  log->flush();
  EXPECT_EQ(read_file(path()).value(), "3 goal 2\n");
}

// As a second process that is about to be refused would.
TEST_F(InputLogFileTest, ALogInUseIsRefusedAndStaysAsItIs) {
  const auto log = InputLogFile::create(path()).value();
  log->add({.time_ns = 3, .input = rollout::GoalSet{2}});
  log->flush();
  const auto second = InputLogFile::create(path());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(second.error().message(), HasSubstr("rollout.input_log"));
  EXPECT_EQ(read_file(path()).value(), "3 goal 2\n");
}

}  // namespace
}  // namespace rondo::rl
