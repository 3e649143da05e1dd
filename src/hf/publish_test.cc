#include "hf/publish.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hf/test_folder.h"

namespace rondo::hf {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

FillFolder contents(const std::string& text) {
  return [text](const fs::path& folder) -> Result<void> {
    fs::create_directory(folder / "inner");
    RONDO_TRY(write_file_durable(folder / "inner" / "a", text));
    return write_file_durable(folder / "b", text);
  };
}

Result<fs::path> publish(const TestFolder& folder, const char* name, const FillFolder& fill,
                         const PublishProgress& progress = {}) {
  return publish_folder(folder.path(), name, "latest", fill, progress);
}

TEST(PublishTest, PublishesAndPoints) {
  TestFolder folder;
  EXPECT_FALSE(read_pointer(folder.path(), "latest").value().has_value());
  ASSERT_TRUE(publish(folder, "step_1", contents("one")));
  ASSERT_TRUE(publish(folder, "step_2", contents("two")));
  EXPECT_EQ(read_pointer(folder.path(), "latest").value(), folder.path() / "step_2");
  EXPECT_EQ(read_file(folder.path() / "step_2/inner/a").value(), "two");
  EXPECT_THAT(folder.names(), ElementsAre("latest", "step_1", "step_2"));
}

TEST(PublishTest, CreatesTheParent) {
  TestFolder folder;
  const fs::path parent = folder.path() / "runs" / "checkpoints";
  EXPECT_EQ(publish_folder(parent, "x", "latest", contents("one")).value(), parent / "x");
}

TEST(PublishTest, TellsWhereItStands) {
  TestFolder folder;
  std::vector<std::string> stages;
  std::vector<bool> in_place;
  ASSERT_TRUE(publish(folder, "step_1", contents("one"), [&](std::string_view stage) {
    stages.emplace_back(stage);
    in_place.push_back(fs::exists(folder.path() / "step_1"));
  }));
  EXPECT_THAT(stages, ElementsAre("begin", "before_rename", "after_rename", "done"));
  EXPECT_THAT(in_place, ElementsAre(false, false, true, true));
}

TEST(PublishTest, AFailedFillLeavesNothing) {
  TestFolder folder;
  ASSERT_TRUE(publish(folder, "step_1", contents("one")));
  const auto failed = publish(folder, "step_2", [](const fs::path& path) -> Result<void> {
    RONDO_TRY(write_file_durable(path / "half", "half"));
    return write_file_durable("/dev/full", "more");
  });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(folder.names(), ElementsAre("latest", "step_1"));
  EXPECT_EQ(read_pointer(folder.path(), "latest").value(), folder.path() / "step_1");
}

TEST(PublishTest, WhatThePointerNamesIsNotReplaced) {
  TestFolder folder;
  ASSERT_TRUE(publish(folder, "step_1", contents("one")));
  const auto again = publish(folder, "step_1", contents("other"));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(again.error().message(), HasSubstr("is published already"));
  EXPECT_EQ(read_file(folder.path() / "step_1/b").value(), "one");
  EXPECT_THAT(folder.names(), ElementsAre("latest", "step_1"));
}

TEST(PublishTest, WhatThePointerDoesNotNameIsReplaced) {
  TestFolder folder;
  ASSERT_TRUE(publish(folder, "step_2", contents("abandoned")));
  ASSERT_TRUE(publish(folder, "step_1", contents("one")));
  ASSERT_TRUE(publish(folder, "step_2", contents("two")));
  EXPECT_EQ(read_file(folder.path() / "step_2/b").value(), "two");
  EXPECT_THAT(folder.names(), ElementsAre("latest", "step_1", "step_2"));
}

TEST(PublishTest, RefusesNamesThatLeaveTheFolder) {
  TestFolder folder;
  for (const char* name : {"", ".", "..", "a/b", ".hidden", "a\nb", "latest"})
    EXPECT_FALSE(publish(folder, name, contents("x"))) << name;
  EXPECT_THAT(folder.names(), ElementsAre());
}

TEST(PublishTest, APointerToNothingIsDataLoss) {
  TestFolder folder;
  for (const char* text : {"gone\n", "../x\n", "", "\n"}) {
    folder.write("latest", text);
    const auto pointed = read_pointer(folder.path(), "latest");
    ASSERT_FALSE(pointed) << text;
    EXPECT_EQ(pointed.error().code(), Code::kDataLoss);
    EXPECT_THAT(pointed.error().message(), HasSubstr("latest"));
  }
}

// A child that is killed at `stage` ("fill": with one file written) while it publishes step_2.
void publish_and_die(const TestFolder& folder, const std::string& stage) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto die = [&](std::string_view reached) {
      if (reached == stage) ::raise(SIGKILL);
    };
    const auto fill = [&](const fs::path& path) -> Result<void> {
      RONDO_TRY(write_file_durable(path / "b", "half"));
      die("fill");
      return contents("two")(path);
    };
    (void)publish(folder, "step_2", fill, die);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << stage << " was never reached";
}

TEST(PublishTest, AKilledWriterLeavesOldOrNewAndTheNextOneCleansUp) {
  for (const std::string stage : {"begin", "fill", "before_rename", "after_rename", "done"}) {
    TestFolder folder;
    ASSERT_TRUE(publish(folder, "step_1", contents("one")));
    publish_and_die(folder, stage);
    const bool finished = stage == "done";
    EXPECT_EQ(read_pointer(folder.path(), "latest").value(),
              folder.path() / (finished ? "step_2" : "step_1"));
    if (fs::exists(folder.path() / "step_2")) {
      EXPECT_EQ(read_file(folder.path() / "step_2/inner/a").value(), "two") << stage;
    }
    const char* next = finished ? "step_3" : "step_2";
    ASSERT_TRUE(publish(folder, next, contents("again"))) << stage;
    EXPECT_EQ(read_file(folder.path() / next / "inner/a").value(), "again");
    for (const std::string& name : folder.names()) EXPECT_FALSE(name.starts_with(".tmp-")) << stage;
  }
}

}  // namespace
}  // namespace rondo::hf
