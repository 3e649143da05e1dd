#include "rl/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "rl/tiny_run.h"

namespace rondo::rl {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr PromptDigest kPrompts{.prompts = 6, .checksum = 1};

class RunFolderTest : public ::testing::Test {
 protected:
  RunFolderTest() : config_(tiny_.config("run")), root_(config_.trainer.run_dir) {}

  RunFolder open() { return RunFolder::open(config_).value(); }
  std::string open_error() {
    const auto folder = RunFolder::open(config_);
    return folder ? "no error" : folder.error().message();
  }

  static void log(RunFolder& folder, std::int64_t step) {
    metrics::StepRecord record;
    record.set("value", step);
    ASSERT_TRUE(folder.log_step(step, record));
  }

  // A checkpoint folder as publishing leaves it, without a model.
  void make_checkpoint(const std::string& name, bool pointed) {
    fs::create_directories(root_ / "checkpoints" / name / "trainer");
    if (pointed) point_to(name);
  }
  void point_to(const std::string& name) {
    ASSERT_TRUE(write_file_durable(root_ / "checkpoints" / "latest", name + "\n"));
  }
  void touch(const std::string& name) { ASSERT_TRUE(write_file_durable(root_ / name, "{}\n")); }

  std::vector<std::string> names(const char* below) {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(root_ / below)) found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }

  TinyRun tiny_;
  Config config_;
  fs::path root_;
};

TEST_F(RunFolderTest, FreshFolderBeginsAtStepOne) {
  const RunFolder folder = open();
  EXPECT_EQ(folder.first_step(), 1);
  EXPECT_FALSE(folder.checkpoint());
  EXPECT_THAT(names("rollouts"), IsEmpty());
  EXPECT_EQ(read_file(root_ / "config.toml").value(), config_toml(config_));
  EXPECT_EQ(read_file(root_ / "metrics.jsonl").value(), "");
}

TEST_F(RunFolderTest, OneUserAtATime) {
  {
    RunFolder folder = open();
    EXPECT_THAT(open_error(),
                HasSubstr("is in use by another rondo process; choose another trainer.run_dir"));
    const RunFolder moved = std::move(folder);
    EXPECT_THAT(open_error(), HasSubstr("is in use"));
  }
  EXPECT_EQ(open_error(), "no error");
}

TEST_F(RunFolderTest, FailedOpenGivesTheLockBack) {
  { open(); }
  point_to("global_step_5");
  EXPECT_THAT(open_error(), HasSubstr("latest"));
  fs::remove(root_ / "checkpoints" / "latest");
  EXPECT_EQ(open_error(), "no error");
}

TEST_F(RunFolderTest, ResumeModeDisableRefusesAUsedFolder) {
  config_.trainer.resume_mode = ResumeMode::kDisable;
  EXPECT_EQ(open_error(), "no error");
  EXPECT_THAT(open_error(), HasSubstr("holds a run already"));
  config_.trainer.resume_mode = ResumeMode::kAuto;
  EXPECT_EQ(open_error(), "no error");
}

TEST_F(RunFolderTest, WithoutACheckpointEverythingIsDoneAgain) {
  {
    RunFolder folder = open();
    for (const int step : {0, 1, 2}) log(folder, step);
    touch("rollouts/step_1.jsonl");
  }
  const RunFolder folder = open();
  EXPECT_EQ(folder.first_step(), 1);
  EXPECT_EQ(read_file(root_ / "metrics.jsonl").value(), "");
  EXPECT_THAT(names("rollouts"), IsEmpty());
}

TEST_F(RunFolderTest, LogsAreCutToTheCheckpoint) {
  {
    RunFolder folder = open();
    for (const int step : {0, 1, 2, 3, 4}) log(folder, step);
    for (const int step : {1, 2, 3, 4}) touch("rollouts/step_" + std::to_string(step) + ".jsonl");
  }
  make_checkpoint("global_step_2", true);
  const RunFolder folder = open();
  EXPECT_EQ(folder.first_step(), 3);
  EXPECT_EQ(folder.checkpoint()->folder, root_ / "checkpoints" / "global_step_2");
  EXPECT_EQ(read_file(root_ / "metrics.jsonl").value(),
            "{\"step\":0,\"value\":0}\n{\"step\":1,\"value\":1}\n{\"step\":2,\"value\":2}\n");
  EXPECT_THAT(names("rollouts"), ElementsAre("step_1.jsonl", "step_2.jsonl"));
}

TEST_F(RunFolderTest, SettingsOfAnOlderVersionAreNoObstacle) {
  { open(); }
  make_checkpoint("global_step_2", true);
  std::string old = config_toml(config_);
  const auto replace = [&](const std::string& from, const std::string& to) {
    ASSERT_NE(old.find(from), std::string::npos) << from;
    old.replace(old.find(from), from.size(), to);
  };
  replace("[rollout]\n", "[rollout]\nlength_quantile = 5.0\n");
  replace("lr = 0.001", "lr = inf");
  replace("seed = 1", "seed = 7");
  ASSERT_TRUE(write_file_durable(root_ / "config.toml", old));
  testing::internal::CaptureStderr();
  EXPECT_EQ(open().first_step(), 3);
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_THAT(told,
              HasSubstr("unknown key 'rollout.length_quantile'; did you mean 'rollout.length_misses'?"));
  EXPECT_THAT(told, HasSubstr("actor.optim.lr must be a finite number"));
  EXPECT_THAT(told, HasSubstr("which changes results from here on: trainer.seed: 7 -> 1"));
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 3) << told;
  EXPECT_EQ(read_file(root_ / "config.toml").value(), config_toml(config_));
}

TEST_F(RunFolderTest, WhatAKilledProcessLeftIsRemoved) {
  { open(); }
  for (const char* name :
       {"global_step_1", "global_step_2", "global_step_3", "global_step_7", ".tmp-global_step_8"})
    make_checkpoint(name, false);
  point_to("global_step_3");
  config_.trainer.max_ckpt_to_keep = 0;
  { open(); }
  EXPECT_THAT(names("checkpoints"), ElementsAre("global_step_1", "global_step_2", "global_step_3", "latest"));
  config_.trainer.max_ckpt_to_keep = 2;
  { open(); }
  EXPECT_THAT(names("checkpoints"), ElementsAre("global_step_2", "global_step_3", "latest"));
}

TEST_F(RunFolderTest, FolderRenamedBeforeTheFirstPointerIsRemoved) {
  { open(); }
  make_checkpoint("global_step_2", false);
  EXPECT_EQ(open().first_step(), 1);
  EXPECT_THAT(names("checkpoints"), IsEmpty());
}

TEST_F(RunFolderTest, LostPointerLosesNothing) {
  {
    RunFolder folder = open();
    log(folder, 1);
  }
  make_checkpoint("global_step_1", false);
  make_checkpoint("global_step_2", false);
  EXPECT_THAT(open_error(),
              HasSubstr("write the newest whole checkpoint's name into it, e.g. global_step_2"));
  EXPECT_THAT(names("checkpoints"), ElementsAre("global_step_1", "global_step_2"));
  EXPECT_NE(read_file(root_ / "metrics.jsonl").value(), "");
}

TEST_F(RunFolderTest, PointerToSomethingElseIsRefused) {
  { open(); }
  make_checkpoint("my_backup", true);
  EXPECT_THAT(open_error(), HasSubstr("names 'my_backup', which is no checkpoint"));
}

TEST_F(RunFolderTest, ACheckpointThatCannotFitIsRefusedAtOnce) {
  const RunFolder folder = open();
  EXPECT_TRUE(folder.check_space({.bytes = 1000, .saves = 1, .keep = 2}));
  const auto refused = folder.check_space({.bytes = std::int64_t{1} << 60, .saves = 1, .keep = 2});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message(),
              HasSubstr("a checkpoint takes 1048576TiB, but " + root_.string() + " has only"));
  EXPECT_THAT(refused.error().message(), HasSubstr("free some space or choose another trainer.run_dir"));
}

TEST_F(RunFolderTest, SpaceIsAskedForAllCheckpointsThatExistAtATime) {
  const auto told = [&](std::int64_t saves, int keep) {
    const RunFolder folder = open();
    const auto checked = folder.check_space({.bytes = std::int64_t{1} << 60, .saves = saves, .keep = keep});
    return checked ? "enough" : checked.error().message();
  };
  EXPECT_THAT(told(9, 2),
              HasSubstr("1048576TiB and up to 3 will be there at a time (trainer.max_ckpt_to_keep = "
                        "2, and the one being written), but"));
  EXPECT_THAT(told(9, 2),
              HasSubstr("free some space, keep fewer (trainer.max_ckpt_to_keep, trainer.save_freq) or"));
  EXPECT_THAT(told(3, 2), HasSubstr("up to 3 will"));
  EXPECT_THAT(told(2, 2),
              HasSubstr("up to 2 will be there at a time (trainer.max_ckpt_to_keep = 2 keeps all)"));
  EXPECT_THAT(told(9, 0),
              HasSubstr("up to 9 will be there at a time (trainer.max_ckpt_to_keep = 0 keeps all)"));
  make_checkpoint("global_step_2", true);
  EXPECT_THAT(told(9, 2),
              HasSubstr("up to 2 more will be there at a time (trainer.max_ckpt_to_keep = 2, and"));
  EXPECT_THAT(told(9, 1), HasSubstr("a checkpoint takes 1048576TiB, but"))
      << "it goes when the next is there";
  EXPECT_THAT(told(9, 0), HasSubstr("up to 9 more will be there"));
  const auto available = static_cast<std::int64_t>(fs::space(root_).available);
  EXPECT_TRUE(open().check_space({.bytes = available / 2, .saves = 1, .keep = 9}));
  EXPECT_FALSE(open().check_space({.bytes = available / 2, .saves = 9, .keep = 9}));
}

TEST_F(RunFolderTest, RunFolderThatCannotBeMade) {
  const std::string file = tiny_.write("file", "");
  config_.trainer.run_dir = file + "/run";
  EXPECT_THAT(open_error(), HasSubstr("choose another trainer.run_dir"));
}

TEST_F(RunFolderTest, LockThatCannotBeTakenSaysWhy) {
  fs::create_directories(root_ / ".lock");
  EXPECT_THAT(open_error(), HasSubstr("Is a directory; choose another trainer.run_dir"));
}

// With a real model and trainer.
class CheckpointTest : public RunFolderTest {
 protected:
  struct Parts {
    std::unique_ptr<Session> session;
    std::unique_ptr<train::Trainer> trainer;
  };
  Parts load_model() {
    Parts parts{Session::open(config_).value(), nullptr};
    parts.trainer = train::Trainer::create(config_.train, *parts.session->model, *parts.session->weights,
                                           parts.session->context)
                        .value();
    return parts;
  }
  // Moves every weight.
  static void update(Parts& parts) {
    parts.trainer->zero_grad();
    const train::TrainUnit unit{
        {1, 2}, {{.tokens = {3, 4}, .old_logprobs = {-5, -5}, .ref_logprobs = {}, .advantage = 1}}};
    ASSERT_TRUE(parts.trainer->accumulate(unit, {}, 1.0F));
    ASSERT_TRUE(parts.trainer->update({}, 1e-2, 1));
  }
};

TEST_F(CheckpointTest, SavedStateComesBackBitForBit) {
  Parts parts = load_model();
  update(parts);
  {
    RunFolder folder = open();
    log(folder, 1);
    const auto saved = folder.save(1, *parts.session, *parts.trainer, kPrompts);
    ASSERT_TRUE(saved) << saved.error().message();
    EXPECT_EQ(saved->global_step, 1);
    EXPECT_EQ(folder.first_step(), 2);
  }
  const RunFolder folder = open();
  ASSERT_TRUE(folder.checkpoint());
  Parts fresh = load_model();
  const auto loaded = RunFolder::load(*folder.checkpoint(), *fresh.trainer);
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ(fresh.trainer->updates(), 1);
  ASSERT_TRUE(fresh.trainer->save_state(tiny_.folder() / "again"));
  EXPECT_TRUE(read_file(tiny_.folder() / "again").value() ==
              read_file(folder.checkpoint()->folder / "trainer" / "state.safetensors").value());
  update(parts);
  update(fresh);
  ASSERT_TRUE(parts.trainer->save_state(tiny_.folder() / "a"));
  ASSERT_TRUE(fresh.trainer->save_state(tiny_.folder() / "b"));
  EXPECT_TRUE(read_file(tiny_.folder() / "a").value() == read_file(tiny_.folder() / "b").value());
}

TEST_F(CheckpointTest, OldCheckpointsArePruned) {
  const Parts parts = load_model();
  RunFolder folder = open();
  for (const int step : {1, 2, 3, 12})
    ASSERT_TRUE(folder.save(step, *parts.session, *parts.trainer, kPrompts));
  EXPECT_THAT(names("checkpoints"), ElementsAre("global_step_12", "global_step_3", "latest"));
}

TEST_F(CheckpointTest, DamagedStateIsRefused) {
  const Parts parts = load_model();
  RunFolder folder = open();
  const Checkpoint checkpoint = folder.save(1, *parts.session, *parts.trainer, kPrompts).value();
  const fs::path state = checkpoint.folder / "trainer" / "state.safetensors";
  const std::string whole = read_file(state).value();
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, whole.size() / 2, whole.size() - 1}) {
    ASSERT_TRUE(write_file_durable(state, whole.substr(0, size)));
    Parts fresh = load_model();
    const auto loaded = RunFolder::load(checkpoint, *fresh.trainer);
    ASSERT_FALSE(loaded) << size;
    EXPECT_THAT(loaded.error().message(), HasSubstr("resuming from"));
    EXPECT_THAT(loaded.error().message(), HasSubstr("state.safetensors"));
  }
  fs::remove(state);
  Parts fresh = load_model();
  EXPECT_EQ(RunFolder::load(checkpoint, *fresh.trainer).error().code(), Code::kNotFound);
}

TEST_F(CheckpointTest, DamageIsToldWithTheWayOn) {
  const Parts parts = load_model();
  RunFolder folder = open();
  std::vector<Checkpoint> checkpoints;
  const auto flip_a_bit = [](const Checkpoint& checkpoint) {
    const fs::path file = checkpoint.folder / "trainer" / "state.safetensors";
    std::string state = read_file(file).value();
    state[state.size() - 1000] ^= 1;
    ASSERT_TRUE(write_file_durable(file, state));
  };
  for (const int step : {1, 2}) {
    checkpoints.push_back(folder.save(step, *parts.session, *parts.trainer, kPrompts).value());
    flip_a_bit(checkpoints.back());
  }
  Parts fresh = load_model();
  const auto second = RunFolder::load(checkpoints[1], *fresh.trainer);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kDataLoss);
  EXPECT_THAT(second.error().message(),
              HasSubstr("global_step_2/trainer/state.safetensors: its checksum is"));
  EXPECT_THAT(second.error().message(),
              HasSubstr("write its name, global_step_1, into " + (root_ / "checkpoints/latest").string()));
  const auto first = RunFolder::load(checkpoints[0], *fresh.trainer);
  ASSERT_FALSE(first);
  EXPECT_THAT(first.error().message(), HasSubstr("has no older checkpoint to go on from; begin again"));
}

TEST_F(CheckpointTest, OtherPromptsThanBeforeAreTold) {
  const Parts parts = load_model();
  RunFolder folder = open();
  const Checkpoint checkpoint = folder.save(2, *parts.session, *parts.trainer, kPrompts).value();
  const auto told = [&](const PromptDigest& now) {
    testing::internal::CaptureStderr();
    RunFolder::warn_of_other_prompts(checkpoint, now);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(told(kPrompts), "");
  EXPECT_THAT(
      told({.prompts = 7, .checksum = 2}),
      HasSubstr("resuming with other training prompts than before, which changes results from here on: "
                "6 prompts -> 7 prompts; the run goes on with the new ones at step 3, and will not "
                "equal one that was never interrupted"));
  EXPECT_THAT(told({.prompts = 6, .checksum = 2}), HasSubstr("6 prompts as before, with other tokens"));
  const fs::path file = checkpoint.folder / "trainer" / "train_prompts.json";
  ASSERT_TRUE(write_file_durable(file, "{}"));
  EXPECT_THAT(told(kPrompts), HasSubstr("cannot compare with the prompts that the run was trained on: " +
                                        file.string() + ": no digest of prompts"));
  fs::remove(file);
  EXPECT_EQ(told({.prompts = 7, .checksum = 2}), "") << "a checkpoint of an earlier version";
}

TEST_F(CheckpointTest, TwiceTheSameStepIsRefused) {
  const Parts parts = load_model();
  RunFolder folder = open();
  ASSERT_TRUE(folder.save(1, *parts.session, *parts.trainer, kPrompts));
  const auto again = folder.save(1, *parts.session, *parts.trainer, kPrompts);
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message(), HasSubstr("saving a checkpoint"));
}

}  // namespace
}  // namespace rondo::rl
