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
      // Four standard errors of the mean: no deviation within [0, 8192] around 2000 exceeds 3520.
      EXPECT_NEAR(mean_of(lengths), 2000.0, 4 * 3520.0 / std::sqrt(80000.0)) << shape;
    }
  }
}

// At both ends of what can be reached, where most lengths are 1 or few are far from the limit.
TEST(Lengths, MeetTheMeanAtTheEndsOfWhatCanBeReached) {
  struct Case {
    double mean, shape;
    int max;
    AtMax at_max;
  };
  for (const Case& c : {Case{2, 3, 2048, AtMax::kTruncate}, Case{2, 3, 2048, AtMax::kClip},
                        Case{1.2, 0.5, 8, AtMax::kTruncate}, Case{3.5, 0.2, 6, AtMax::kClip},
                        Case{1150, 5, 2048, AtMax::kTruncate}, Case{1900, 5, 2048, AtMax::kClip},
                        Case{1750, 1, 2048, AtMax::kTruncate}, Case{1, 1, 1, AtMax::kClip}}) {
    const LengthConfig config{.group_size = 4,
                              .mean = c.mean,
                              .max = c.max,
                              .shape = c.shape,
                              .correlation = 0.0,
                              .at_max = c.at_max};
    ASSERT_TRUE(config.validate()) << c.mean;
    const auto lengths = lengths_of(draw_groups(config, 20000, 7));
    double variance = 0.0;
    for (const double x : lengths)
      variance += (x - c.mean) * (x - c.mean) / static_cast<double>(lengths.size());
    const double error = std::sqrt(variance / static_cast<double>(lengths.size()));
    EXPECT_NEAR(mean_of(lengths), c.mean, 4 * error + 1e-9) << c.mean << " " << c.shape;
  }
}

TEST(Lengths, AMeanThatCannotBeReachedIsRefusedWithTheRange) {
  const auto message = [](const LengthConfig& config) {
    const auto valid = config.validate();
    return valid ? std::string("no error") : valid.error().message();
  };
  const LengthConfig wide{.mean = 1900, .max = 2048, .shape = 5};
  EXPECT_NE(message(wide).find("at least 1 and at most 1209"), std::string::npos) << message(wide);
  EXPECT_NE(message({.mean = 2, .max = 1}).find("at most 1"), std::string::npos);
  EXPECT_NE(message({.mean = 2, .max = 2, .at_max = AtMax::kClip}).find("at most 1.98"), std::string::npos);
  EXPECT_EQ(message({.mean = 1, .max = 1}), "no error");
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
