#include "sim/lengths.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

namespace rondo::sim {
namespace {

std::vector<double> lengths_of(const std::vector<rollout::GroupSpec>& groups) {
  std::vector<double> lengths;
  for (const auto& group : groups) {
    for (const auto& sample : group.samples) lengths.push_back(sample.true_tokens);
  }
  return lengths;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Share of the variance of log lengths that lies between groups.
double correlation_of(const std::vector<rollout::GroupSpec>& groups) {
  double pairs = 0.0;
  std::vector<double> logs;
  for (const double length : lengths_of(groups)) logs.push_back(std::log(length));
  const double mean = mean_of(logs);
  double variance = 0.0;
  for (const double x : logs) variance += (x - mean) * (x - mean) / static_cast<double>(logs.size());
  for (const auto& group : groups) {
    pairs +=
        (std::log(group.samples[0].true_tokens) - mean) * (std::log(group.samples[1].true_tokens) - mean);
  }
  return pairs / static_cast<double>(groups.size()) / variance;
}

TEST(Lengths, MeetTheMeanWhateverTheShapeAndTheEnd) {
  for (const AtMax at_max : {AtMax::kTruncate, AtMax::kClip}) {
    for (const double shape : {0.4, 1.0, 1.6}) {
      const LengthConfig config{
          .group_size = 4, .mean = 2000, .max = 8192, .shape = shape, .correlation = 0.0, .at_max = at_max};
      const auto lengths = lengths_of(draw_groups(config, 20000, 7));
      // The standard error of the mean is below 2500 / sqrt(80000) = 9.
      EXPECT_NEAR(mean_of(lengths), 2000.0, 36.0) << shape;
    }
  }
}

TEST(Lengths, StayWithinTheLimitAndOnlyClippingReachesIt) {
  LengthConfig config{.group_size = 4, .mean = 4000, .max = 8192, .shape = 1.0};
  const auto at_limit = [&] {
    const auto lengths = lengths_of(draw_groups(config, 5000, 3));
    for (const double length : lengths) EXPECT_TRUE(length >= 1.0 && length <= 8192.0) << length;
    return std::count(lengths.begin(), lengths.end(), 8192.0);
  };
  EXPECT_LT(at_limit(), 20);
  config.at_max = AtMax::kClip;
  EXPECT_GT(at_limit(), 1000);
}

TEST(Lengths, AreCorrelatedWithinGroupsAsAsked) {
  for (const double correlation : {0.0, 0.5, 0.9}) {
    const LengthConfig config{
        .group_size = 2, .mean = 1000, .max = 1 << 20, .shape = 0.5, .correlation = correlation};
    EXPECT_NEAR(correlation_of(draw_groups(config, 40000, 5)), correlation, 0.03);
  }
}

TEST(Lengths, AreAFunctionOfTheSeedAndMoreGroupsLeaveTheFirstAsTheyAre) {
  const LengthConfig config;
  const auto some = draw_groups(config, 10, 1);
  auto more = draw_groups(config, 20, 1);
  more.resize(10);
  EXPECT_EQ(some, more);
  EXPECT_NE(some, draw_groups(config, 10, 2));
}

}  // namespace
}  // namespace rondo::sim
