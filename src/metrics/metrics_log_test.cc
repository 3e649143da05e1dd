#include "metrics/metrics_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "base/fault_point.h"
#include "metrics/json_row.h"
#include "metrics/jsonl_file.h"

namespace rondo::metrics {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A path that is free of earlier runs.
fs::path fresh(const char* name) {
  const fs::path folder = fs::path(testing::TempDir()) / "rondo_metrics_log_test";
  fs::create_directories(folder);
  fs::remove(folder / name);
  return folder / name;
}

StepRecord record_of(int step) {
  StepRecord record;
  record.set("reward/mean", step * 0.1);
  record.set("timing_s/step", step * 1.5, Nature::kMeasured);
  return record;
}

std::string lines(int first, int last) {
  std::string out;
  for (int step = first; step <= last; ++step) out += json_row(step, record_of(step)) + "\n";
  return out;
}

void append_steps(MetricsLog& log, int first, int last) {
  for (int step = first; step <= last; ++step) ASSERT_TRUE(log.append(step, record_of(step)));
}

TEST(MetricsLogTest, WritesALinePerStep) {
  const fs::path path = fresh("plain.jsonl");
  auto log = MetricsLog::open(path, -1);
  ASSERT_TRUE(log);
  append_steps(*log, 1, 3);
  ASSERT_TRUE(log->sync());
  EXPECT_EQ(read_file(path).value(), lines(1, 3));
}

TEST(MetricsLogTest, ResumeContinuesAfterTheCheckpoint) {
  const fs::path path = fresh("resumed.jsonl");
  ASSERT_TRUE(write_file_durable(path, lines(1, 5) + "{\"step\":6,\"rew"));
  auto log = MetricsLog::open(path, 3);
  ASSERT_TRUE(log);
  append_steps(*log, 4, 6);
  EXPECT_EQ(read_file(path).value(), lines(1, 6));
}

TEST(MetricsLogTest, FreshRunStartsEmpty) {
  const fs::path path = fresh("fresh.jsonl");
  ASSERT_TRUE(write_file_durable(path, lines(0, 5)));
  ASSERT_TRUE(MetricsLog::open(path, -1));
  EXPECT_EQ(read_file(path).value(), "");
}

TEST(MetricsLogTest, KillInsideALineLeavesACutLastLine) {
  const fs::path path = fresh("killed.jsonl");
  EXPECT_EXIT(
      {
        auto log = MetricsLog::open(path, -1);
        static_cast<void>(fault::arm("log_half_written:2"));
        append_steps(*log, 1, 2);
      },
      testing::KilledBySignal(SIGKILL), "");
  const std::string whole = lines(1, 1);
  const std::string left = read_file(path).value();
  EXPECT_GT(left.size(), whole.size());
  EXPECT_EQ(left, lines(1, 2).substr(0, left.size()));
  ASSERT_TRUE(cut_to_step(path, 2));
  EXPECT_EQ(read_file(path).value(), whole);
}

TEST(MetricsLogTest, FullDiskIsAnErrorThatStays) {
  const fs::path path = fresh("full.jsonl");
  auto log = MetricsLog::open(path, -1);
  ASSERT_TRUE(log);
  append_steps(*log, 1, 1);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{lines(1, 1).size() + 5, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto failed = log->append(2, record_of(2));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);

  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(failed.error().message(), HasSubstr("full.jsonl"));
  const auto again = log->append(3, record_of(3));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().message(), failed.error().message());
  EXPECT_FALSE(log->sync());
  ASSERT_TRUE(cut_to_step(path, 9));
  EXPECT_EQ(read_file(path).value(), lines(1, 1));
}

TEST(JsonlFileTest, KeepsRowsWhoseStepsWentBack) {
  const fs::path path = fresh("back.jsonl");
  ASSERT_TRUE(write_file_durable(path, "{\"step\":2}\n{\"step\":5}\n{\"step\":1,\"x\":[1]}\n"));
  ASSERT_TRUE(cut_to_step(path, 2));
  EXPECT_EQ(read_file(path).value(), "{\"step\":2}\n{\"step\":1,\"x\":[1]}\n");
}

TEST(JsonlFileTest, MissingFileIsNothingToCut) {
  const fs::path path = fresh("missing.jsonl");
  ASSERT_TRUE(cut_to_step(path, 2));
  EXPECT_FALSE(fs::exists(path));
}

TEST(JsonlFileTest, AFolderIsAnError) {
  EXPECT_EQ(cut_to_step(fresh("any").parent_path(), 2).error().code(), Code::kInvalidArgument);
}

TEST(JsonlFileTest, DamagedLineIsAnErrorThatNamesItAndChangesNothing) {
  const fs::path path = fresh("damaged.jsonl");
  const std::string text = "{\"step\":1}\n{\"st\n{\"step\":3}\n";
  ASSERT_TRUE(write_file_durable(path, text));
  const auto cut = cut_to_step(path, 1);
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code(), Code::kDataLoss);
  EXPECT_THAT(cut.error().message(), HasSubstr("damaged.jsonl: line 2"));
  EXPECT_EQ(read_file(path).value(), text);
}

RC_GTEST_PROP(JsonlFileTest, ATextCutAnywhereKeepsItsWholeRowsUpToTheStep, ()) {
  const int last = *rc::gen::inRange(0, 8);
  const std::string text = lines(1, last);
  const std::string cut = text.substr(0, *rc::gen::inRange<std::size_t>(0, text.size() + 1));
  const int step = *rc::gen::inRange(0, 9);
  const auto rows = rows_up_to_step(cut, step);
  RC_ASSERT(rows.has_value());
  std::string kept;
  for (const std::string_view line : *rows) kept += line;
  // The naive answer: the longest run of whole lines that is a prefix of the cut text.
  int expected = 0;
  while (expected < std::min(last, step) && cut.starts_with(lines(1, expected + 1))) ++expected;
  RC_ASSERT(kept == lines(1, expected));
}

}  // namespace
}  // namespace rondo::metrics
