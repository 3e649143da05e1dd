#include "rl/timeline_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "rl/tiny_run.h"

namespace rondo::rl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TimelineFilesTest : public ::testing::Test {
 protected:
  // Names of the files that a run of four steps leaves in its timeline folder.
  std::vector<std::string> files_of_run(const std::string& setting) {
    const Config config = tiny_.config(
        setting, {"rollout.instances=2", "rollout.chunk_tokens=4", "rollout.timeline=" + setting});
    EXPECT_TRUE(train(config));
    folder_ = std::filesystem::path(config.trainer.run_dir) / "timeline";
    std::vector<std::string> names;
    if (!std::filesystem::exists(folder_)) return names;
    for (const auto& [name, bytes] : files_below(folder_)) names.push_back(name);
    return names;
  }

  TinyRun tiny_;
  std::filesystem::path folder_;
};

TEST_F(TimelineFilesTest, LastIsTheNewestStep) {
  EXPECT_THAT(files_of_run("last"), ElementsAre("last.html", "last.json"));
  EXPECT_THAT(read_file(folder_ / "last.html").value(), HasSubstr("rollout: step 4"));
  const auto trace = nlohmann::json::parse(read_file(folder_ / "last.json").value());
  std::int64_t finished = 0;
  std::int64_t counters = 0;
  for (const auto& event : trace) {
    if (event["ph"] == "X") finished += event["args"]["finished"].get<std::int64_t>();
    counters +=
        event["ph"] == "C" && event["name"] == "running responses" && event["args"]["value"] > 0 ? 1 : 0;
  }
  EXPECT_EQ(finished, 12);
  EXPECT_GT(counters, 0);
}

TEST_F(TimelineFilesTest, EveryStepHasItsOwn) {
  EXPECT_THAT(files_of_run("every"), ElementsAre("step_1.html", "step_1.json", "step_2.html", "step_2.json",
                                                 "step_3.html", "step_3.json", "step_4.html", "step_4.json"));
}

TEST_F(TimelineFilesTest, NoneWritesNone) {
  EXPECT_THAT(files_of_run("none"), IsEmpty());
}

}  // namespace
}  // namespace rondo::rl
