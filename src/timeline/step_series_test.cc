#include "timeline/step_series.h"

#include <gtest/gtest.h>

#include <random>

namespace rondo::timeline {
namespace {

TEST(StepSeriesTest, MeansOfAStepFunction) {
  StepSeries series(10'000, 8);
  series.set(10'500, 4.0);  // half of the first microsecond
  series.set(12'000, 1.0);
  EXPECT_EQ(series.means(12'500), (std::vector<double>{2.0, 4.0, 1.0}));
  EXPECT_EQ(series.bin_ns(), 1'000);
}

TEST(StepSeriesTest, BinsWidenAndKeepTheIntegral) {
  StepSeries series(0, 4);
  for (int i = 0; i < 16; ++i) series.set(i * 1'000, i);
  EXPECT_EQ(series.means(16'000), (std::vector<double>{1.5, 5.5, 9.5, 13.5}));
  EXPECT_EQ(series.bin_ns(), 4'000);
}

TEST(StepSeriesTest, WidthDependsOnTheEndAlone) {
  StepSeries busy(0, 16);
  StepSeries idle(0, 16);
  for (int i = 0; i < 1'000; ++i) busy.set(i * 97, i % 3);
  EXPECT_EQ(busy.means(100'000).size(), idle.means(100'000).size());
  EXPECT_EQ(busy.bin_ns(), idle.bin_ns());
}

TEST(StepSeriesTest, TimesThatGoBackCountAsTheLast) {
  StepSeries series(0, 4);
  series.set(2'000, 8.0);
  series.set(1'000, 2.0);
  EXPECT_EQ(series.means(4'000), (std::vector<double>{0.0, 0.0, 2.0, 2.0}));
}

TEST(StepSeriesTest, IntegralMatchesASum) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    StepSeries series(0, 32);
    std::int64_t now = 0;
    double value = 0;
    double integral = 0;
    for (int i = 0; i < 200; ++i) {
      const std::int64_t next = now + static_cast<std::int64_t>(random() % 5'000);
      integral += value * static_cast<double>(next - now);
      value = static_cast<double>(random() % 10);
      series.set(next, value);
      now = next;
    }
    double sum = 0;
    const std::vector<double> means = series.means(now);
    ASSERT_LE(means.size(), 32U);
    for (std::size_t i = 0; i < means.size(); ++i) {
      const std::int64_t begin = static_cast<std::int64_t>(i) * series.bin_ns();
      sum += means[i] * static_cast<double>(std::min(series.bin_ns(), now - begin));
    }
    EXPECT_NEAR(sum, integral, 1e-6 * integral);
  }
}

}  // namespace
}  // namespace rondo::timeline
