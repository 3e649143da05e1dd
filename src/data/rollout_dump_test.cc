#include "data/rollout_dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace rondo::data {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class RolloutDumpTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  const fs::path folder_ = fs::path(testing::TempDir()) / "rondo_rollout_dump_test";
};

RolloutRow example_row() {
  return {.step = 3,
          .prompt_index = 17,
          .ordinal = 1,
          .sample = 2,
          .policy_version = PolicyVersion(4),
          .data_source = "rondo/largest_of_three",
          .prompt_text = "Largest of 1, 2?\n\"é\"\x01",
          .response_text = "2\xF0\x9F\x98\x80",
          .ground_truth = "2",
          .score = 0.1,
          .advantage = -0.7f,
          .finish_reason = "stop",
          .prompt_tokens = {1, 49151, 0},
          .response_tokens = {5, 2},
          .log_probs = {-0.25f, -1e-7f}};
}

// Bit patterns, so that -0 differs from 0; all NaN are one.
std::uint32_t bits(float value) {
  return std::bit_cast<std::uint32_t>(std::isnan(value) ? NAN : value);
}
std::uint64_t bits(double value) {
  return std::bit_cast<std::uint64_t>(std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value);
}

void expect_same(const RolloutRow& a, const RolloutRow& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.prompt_index, b.prompt_index);
  EXPECT_EQ(a.ordinal, b.ordinal);
  EXPECT_EQ(a.sample, b.sample);
  EXPECT_EQ(a.policy_version, b.policy_version);
  EXPECT_EQ(a.data_source, b.data_source);
  EXPECT_EQ(a.prompt_text, b.prompt_text);
  EXPECT_EQ(a.response_text, b.response_text);
  EXPECT_EQ(a.ground_truth, b.ground_truth);
  EXPECT_EQ(bits(a.score), bits(b.score));
  EXPECT_EQ(bits(a.advantage), bits(b.advantage));
  EXPECT_EQ(a.finish_reason, b.finish_reason);
  EXPECT_EQ(a.prompt_tokens, b.prompt_tokens);
  EXPECT_EQ(a.response_tokens, b.response_tokens);
  ASSERT_EQ(a.log_probs.size(), b.log_probs.size());
  for (std::size_t i = 0; i < a.log_probs.size(); ++i) EXPECT_EQ(bits(a.log_probs[i]), bits(b.log_probs[i]));
}

Result<void> write(const fs::path& folder, std::int64_t step, const std::vector<RolloutRow>& rows) {
  RONDO_ASSIGN(RolloutWriter writer, RolloutWriter::create(folder, step));
  for (const RolloutRow& row : rows) RONDO_TRY(writer.append(row));
  return writer.finish();
}

std::vector<RolloutRow> round_trip(const fs::path& folder, const std::vector<RolloutRow>& rows) {
  EXPECT_TRUE(write(folder, rows.front().step, rows));
  auto back = read_rollouts(rollout_path(folder, rows.front().step));
  if (!back) ADD_FAILURE() << back.error().message();
  return back.value_or(std::vector<RolloutRow>{});
}

TEST_F(RolloutDumpTest, WritesTheStatedFormat) {
  ASSERT_TRUE(write(folder_, 3, {example_row()}));
  EXPECT_EQ(
      read_file(folder_ / "step_3.jsonl").value(),
      "{\"step\": 3, \"prompt_index\": 17, \"ordinal\": 1, \"sample\": 2, \"policy_version\": 4, "
      "\"data_source\": \"rondo/largest_of_three\", \"input\": \"Largest of 1, 2?\\n\\\"é\\\"\\u0001\", "
      "\"output\": \"2\xF0\x9F\x98\x80\", \"gts\": \"2\", \"score\": 0.10000000000000001, "
      "\"advantage\": -0.699999988, \"finish_reason\": \"stop\", \"prompt_tokens\": [1, 49151, 0], "
      "\"response_tokens\": [5, 2], \"log_probs\": [-0.25, -1.00000001e-07]}\n");
}

TEST_F(RolloutDumpTest, ReadsBackWhatItWrote) {
  RolloutRow second = example_row();
  second.sample = 3;
  second.response_tokens = {};
  second.log_probs = {};
  second.response_text = "";
  const std::vector<RolloutRow> rows = {example_row(), second};
  const auto back = round_trip(folder_, rows);
  ASSERT_EQ(back.size(), 2u);
  expect_same(back[0], rows[0]);
  expect_same(back[1], rows[1]);
}

TEST_F(RolloutDumpTest, EveryFloatKeepsItsBits) {
  RolloutRow row = example_row();
  row.log_probs = {0.0f,
                   -0.0f,
                   std::numeric_limits<float>::max(),
                   std::numeric_limits<float>::lowest(),
                   std::numeric_limits<float>::min(),
                   std::numeric_limits<float>::denorm_min(),
                   std::numeric_limits<float>::infinity(),
                   -std::numeric_limits<float>::infinity(),
                   std::numeric_limits<float>::quiet_NaN()};
  for (std::uint32_t i = 0; i < 20000; ++i) {
    const auto value = std::bit_cast<float>(i * 214741u + 7u);  // strides over all exponents and both signs
    if (!std::isnan(value)) row.log_probs.push_back(value);
  }
  row.response_tokens.assign(row.log_probs.size(), 7);
  row.score = -0.0;
  row.advantage = -0.0f;
  const auto back = round_trip(folder_, {row});
  ASSERT_EQ(back.size(), 1u);
  expect_same(back[0], row);
}

TEST_F(RolloutDumpTest, EveryDoubleScoreKeepsItsBits) {
  std::vector<RolloutRow> rows;
  for (const double score :
       {1.0 / 3, std::numeric_limits<double>::max(), std::numeric_limits<double>::denorm_min(),
        -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    rows.push_back(example_row());
    rows.back().score = score;
  }
  const auto back = round_trip(folder_, rows);
  ASSERT_EQ(back.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) expect_same(back[i], rows[i]);
}

TEST_F(RolloutDumpTest, BytesThatAreNotUtf8BecomeTheReplacementCharacter) {
  RolloutRow row = example_row();
  row.response_text = "a\xFFz";
  EXPECT_EQ(round_trip(folder_, {row}).at(0).response_text, "a\xEF\xBF\xBDz");
}

TEST_F(RolloutDumpTest, ADumpAppearsOnlyWhenFinished) {
  const fs::path path = rollout_path(folder_, 3);
  {
    auto writer = RolloutWriter::create(folder_, 3).value();
    ASSERT_TRUE(writer.append(example_row()));
    EXPECT_FALSE(fs::exists(path));
    EXPECT_TRUE(fs::exists(path.string() + ".tmp"));
    const RolloutWriter moved(std::move(writer));
    EXPECT_TRUE(fs::exists(path.string() + ".tmp"));
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(RolloutDumpTest, AnUnfinishedDumpLeavesTheOldOne) {
  ASSERT_TRUE(write(folder_, 3, {example_row()}));
  { ASSERT_TRUE(RolloutWriter::create(folder_, 3)); }
  EXPECT_EQ(read_rollouts(rollout_path(folder_, 3)).value().size(), 1u);
  ASSERT_TRUE(write(folder_, 3, {}));
  EXPECT_TRUE(read_rollouts(rollout_path(folder_, 3)).value().empty());
}

TEST_F(RolloutDumpTest, MissingFolderIsAnError) {
  EXPECT_EQ(RolloutWriter::create(folder_ / "none", 0).error().code(), Code::kNotFound);
  EXPECT_EQ(read_rollouts(folder_ / "step_0.jsonl").error().code(), Code::kNotFound);
}

TEST_F(RolloutDumpTest, RemovesTheStepsThatWillBeDoneAgain) {
  for (const std::int64_t step : {0, 1, 2, 9, 10}) {
    RolloutRow row = example_row();
    row.step = step;
    ASSERT_TRUE(write(folder_, step, {row}));
  }
  for (const char* name : {"step_0.jsonl.tmp", "step_x.jsonl", "step_-5.jsonl", "notes.txt", "step_.jsonl"}) {
    ASSERT_TRUE(write_file_durable(folder_ / name, ""));
  }
  EXPECT_EQ(remove_rollouts_from(folder_, 2).value(), 3);
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder_)) left.push_back(entry.path().filename().string());
  EXPECT_THAT(left, testing::UnorderedElementsAre("step_0.jsonl", "step_1.jsonl", "step_x.jsonl",
                                                  "step_-5.jsonl", "notes.txt", "step_.jsonl"));
  EXPECT_EQ(remove_rollouts_from(folder_ / "none", 0).value(), 0);
}

TEST_F(RolloutDumpTest, DamageIsFoundAndLocated) {
  ASSERT_TRUE(write(folder_, 3, {example_row()}));
  const std::string line = read_file(rollout_path(folder_, 3)).value();
  const auto error_after = [&](const std::string& from, const std::string& to) -> std::string {
    std::string damaged = line;
    damaged.replace(damaged.find(from), from.size(), to);
    const auto rows = parse_rollouts(line + damaged, "step_3.jsonl");
    return rows ? "no error" : rows.error().message();
  };
  EXPECT_THAT(error_after("}\n", ""), HasSubstr("step_3.jsonl:2: not JSON"));
  EXPECT_THAT(error_after("\"gts\"", "\"gtx\""), HasSubstr("no \"gts\""));
  EXPECT_THAT(error_after("[5, 2]", "[5]"), HasSubstr("2 log_probs for 1 response_tokens"));
  EXPECT_THAT(error_after("[5, 2]", "[5, 2147483648]"),
              HasSubstr("\"response_tokens\" has a value of the wrong type"));
  EXPECT_THAT(error_after("[5, 2]", "[5, 2.0]"),
              HasSubstr("\"response_tokens\" has a value of the wrong type"));
  EXPECT_THAT(error_after("-0.25", "-1e39"), HasSubstr("\"log_probs\" has a value of the wrong type"));
  EXPECT_THAT(error_after("-0.25", "\"inf\""), HasSubstr("\"log_probs\" has a value of the wrong type"));
  EXPECT_THAT(error_after("\"stop\"", "7"), HasSubstr("\"finish_reason\" has a value of the wrong type"));
}

}  // namespace
}  // namespace rondo::data
