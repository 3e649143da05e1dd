#include "metrics/step_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace rondo::metrics {
namespace {

using testing::ElementsAre;

std::vector<std::string> names(const StepRecord& record) {
  std::vector<std::string> out;
  for (const auto& entry : record.entries()) out.push_back(entry.name);
  return out;
}

TEST(StepRecordTest, KeepsOrderTypeAndNature) {
  StepRecord record;
  record.set("b", 3);
  record.set("a", 0.5f, Nature::kMeasured);
  EXPECT_THAT(names(record), ElementsAre("b", "a"));
  EXPECT_EQ(std::get<std::int64_t>(record.entries()[0].value), 3);
  EXPECT_EQ(std::get<double>(record.entries()[1].value), 0.5);
  EXPECT_EQ(record.entries()[0].nature, Nature::kDeterministic);
  EXPECT_EQ(record.entries()[1].nature, Nature::kMeasured);
  EXPECT_EQ(record.find("b"), 3.0);
  EXPECT_EQ(record.find("c"), std::nullopt);
}

TEST(StepRecordTest, SettingAgainReplacesInPlace) {
  StepRecord record;
  record.set("a", 1);
  record.set("b", 2);
  record.set("a", 1.5, Nature::kMeasured);
  EXPECT_THAT(names(record), ElementsAre("a", "b"));
  EXPECT_EQ(record.find("a"), 1.5);
  EXPECT_EQ(record.entries()[0].nature, Nature::kMeasured);
}

TEST(StepRecordTest, StatsAreMeanMaxMin) {
  StepRecord record;
  record.add_stats("response_length", std::vector<int>{4, 1, 4});
  record.add_stats("reward", std::vector<double>{-0.5}, Nature::kMeasured);
  record.add_stats("nothing", std::vector<double>{});
  EXPECT_THAT(names(record), ElementsAre("response_length/mean", "response_length/max", "response_length/min",
                                         "reward/mean", "reward/max", "reward/min"));
  EXPECT_EQ(record.find("response_length/mean"), 3.0);
  EXPECT_EQ(record.find("response_length/max"), 4.0);
  EXPECT_EQ(record.find("response_length/min"), 1.0);
  EXPECT_EQ(record.entries()[5].nature, Nature::kMeasured);
}

TEST(StepRecordTest, NanInAnyPlaceShowsInAllStats) {
  for (std::size_t at = 0; at < 3; ++at) {
    std::vector<double> values = {1, 2, 3};
    values[at] = std::nan("");
    StepRecord record;
    record.add_stats("x", values);
    for (const char* name : {"x/mean", "x/max", "x/min"}) EXPECT_TRUE(std::isnan(*record.find(name))) << at;
  }
}

TEST(StepRecordTest, NamesOfTheLogAreABug) {
  StepRecord record;
  EXPECT_DEATH(record.set("step", 1), "name != \"step\"");
  EXPECT_DEATH(record.set("measured", 1), "name != \"measured\"");
}

}  // namespace
}  // namespace rondo::metrics
