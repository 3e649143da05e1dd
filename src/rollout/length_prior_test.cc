// Fits against the lengths they were drawn from, and forecasts worked out by hand.
#include "rollout/length_prior.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "rollout/length_model.h"

namespace rondo::rollout {
namespace {

LengthPrior fit(const LengthModel& model, int num_groups, std::uint64_t seed) {
  return learn({}, sample_of(draw_groups(model, num_groups, 8, 10, seed)));
}

TEST(LengthPriorTest, RecoversTheModel) {
  for (const double rho : {0.0, 0.3, 0.7}) {
    const LengthPrior prior = fit({1000, 0.8, rho, 1 << 30}, 2000, 1);
    EXPECT_NEAR(prior.log_median, std::log(1000), 0.06);  // 4 standard errors of a mean of 2000 groups
    EXPECT_NEAR(prior.sigma, 0.8, 0.04);
    EXPECT_LE(prior.rho, rho + 0.02);
    EXPECT_GE(prior.rho, rho - 0.06);
    EXPECT_EQ(prior.weight, 2000);
  }
}

TEST(LengthPriorTest, CensoredLengthsDoNotHideTheTail) {
  // The limit cuts the upper 28 %.
  const LengthPrior prior = fit({1000, 0.8, 0.5, 1600}, 2000, 2);
  EXPECT_NEAR(prior.log_median, std::log(1000), 0.06);
  EXPECT_NEAR(prior.sigma, 0.8, 0.06);
  EXPECT_LE(prior.rho, 0.52);
  EXPECT_GE(prior.rho, 0.3);
}

TEST(LengthPriorTest, RhoIsRarelyTooHighOnFewGroups) {
  int too_high = 0;
  constexpr int kTrials = 200;
  for (int seed = 0; seed < kTrials; ++seed) {
    too_high += fit({1000, 0.8, 0.4, 1 << 30}, 20, static_cast<std::uint64_t>(seed)).rho > 0.4 ? 1 : 0;
  }
  // One standard error below an unbiased estimate is too high in 16 % of trials; allow 3 deviations.
  EXPECT_LT(too_high, kTrials * 0.16 + 3 * std::sqrt(kTrials * 0.16 * 0.84));
  EXPECT_GT(too_high, 0);
}

TEST(LengthPriorTest, LaterStepsCountTwiceAsMuchAsTheOneBefore) {
  const LengthSample first = sample_of(draw_groups({1000, 0.8, 0.5, 1 << 30}, 100, 8, 10, 3));
  const LengthSample second = sample_of(draw_groups({4000, 0.8, 0.5, 1 << 30}, 100, 8, 10, 4));
  const LengthPrior both = learn(learn({}, first), second);
  const double a = learn({}, first).log_median;
  const double b = learn({}, second).log_median;
  EXPECT_NEAR(both.log_median, (a + 2 * b) / 3, 1e-12);
  EXPECT_EQ(both.weight, 150);
}

TEST(LengthPriorTest, TooLittleChangesNothing) {
  const LengthPrior before{.log_median = 5, .sigma = 1, .rho = 0.5, .weight = 3};
  EXPECT_TRUE(learn(before, {}) == before);
  LengthSample singles;
  for (int g = 0; g < 10; ++g) {
    singles.begin_group();
    singles.add(100, 1000);
  }
  EXPECT_TRUE(learn(before, singles) == before);
}

TEST(LengthPriorTest, NothingButLengthsAtTheLimitIsFinite) {
  LengthSample sample;
  for (int g = 0; g < 4; ++g) {
    sample.begin_group();
    for (int i = 0; i < 4; ++i) sample.add(500, 500);
  }
  const LengthPrior prior = learn({}, sample);
  EXPECT_NEAR(prior.log_median, std::log(500), 1e-6);
  EXPECT_GT(prior.sigma, 0.0);
  EXPECT_EQ(prior.rho, 0.0);
}

TEST(LengthPriorTest, SurvivesItsText) {
  const LengthPrior prior{.log_median = 1.0 / 3.0, .sigma = 0.1, .rho = 0.7, .weight = 12.5};
  EXPECT_EQ(*parse_length_prior(length_prior_json(prior)), prior);
  EXPECT_EQ(*parse_length_prior(length_prior_json({})), LengthPrior{});
  for (const char* bad : {"", "[]", "{}", R"({"log_median": 1, "sigma": 1, "rho": 0.5})",
                          R"({"log_median": 1, "sigma": 1, "rho": 0.98, "weight": 1})",
                          R"({"log_median": 1, "sigma": -1, "rho": 0.5, "weight": 1})",
                          R"({"log_median": 1e308, "sigma": 1, "rho": 0.5, "weight": 1})",
                          R"({"log_median": 1, "sigma": 1, "rho": 0.5, "weight": -1})",
                          R"({"log_median": "1", "sigma": 1, "rho": 0.5, "weight": 1})"}) {
    const auto read = parse_length_prior(bad);
    ASSERT_FALSE(read.has_value()) << bad;
    EXPECT_EQ(read.error().code(), Code::kDataLoss);
  }
}

TEST(LengthPriorTest, NormalBoundIsTheUpperQuantile) {
  EXPECT_NEAR(normal_bound(0.5), 0.0, 1e-9);
  EXPECT_NEAR(normal_bound(0.158655253931), 1.0, 1e-9);
  EXPECT_NEAR(normal_bound(0.001349898032), 3.0, 1e-9);
  EXPECT_NEAR(normal_bound(9.865876450e-10), 6.0, 1e-8);
}

// rho = 1/2: the prior weighs as much as one response.
constexpr LengthPrior kHalf{.log_median = 5.0, .sigma = 1.0, .rho = 0.5, .weight = 10};

TEST(LengthPriorTest, ForecastShrinksToThePrior) {
  EXPECT_DOUBLE_EQ(forecast(kHalf, {}, {}).log_mean, 5.0);
  EXPECT_DOUBLE_EQ(forecast(kHalf, {}, {}).deviation, 1.0);
  const std::vector<std::int32_t> finished = {400};
  EXPECT_DOUBLE_EQ(forecast(kHalf, finished, {}).log_mean, 0.5 * (5.0 + std::log(400.0)));
  EXPECT_DOUBLE_EQ(forecast(kHalf, finished, {}).deviation, std::sqrt(0.5 * 1.5));
}

TEST(LengthPriorTest, UpperLengthIsTheQuantileOfWhatGoesOn) {
  constexpr LengthForecast kForecast{.log_mean = 5.0, .deviation = 0.4};
  const auto beyond = [&](double tokens) {
    return 0.5 * std::erfc((std::log(tokens) - 5.0) / 0.4 / std::sqrt(2.0));
  };
  for (const double share : {0.5, 0.1, 1e-3, 1e-6}) {
    for (const std::int32_t generated : {0, 1, 100, 148, 400, 1000}) {
      const auto upper = static_cast<double>(upper_length(kForecast, share, generated));
      const double still_there = generated == 0 ? 1.0 : beyond(generated);
      EXPECT_GE(beyond(upper - 0.51), share * still_there) << share << " " << generated;
      EXPECT_LE(beyond(upper + 0.51), share * still_there) << share << " " << generated;
    }
  }
  // exp(5 + 0.4 * 7) = 2441: on both sides of where the tail is no longer computed but estimated.
  EXPECT_NEAR(static_cast<double>(upper_length(kForecast, 1e-3, 2445)) / 2445.0,
              static_cast<double>(upper_length(kForecast, 1e-3, 2435)) / 2435.0, 0.01);
}

TEST(LengthPriorTest, WhatHasOutgrownItsForecastGoesOnForLong) {
  constexpr LengthForecast kForecast{.log_mean = 5.0, .deviation = 0.4};
  const auto left = [&](std::int32_t generated) {
    return upper_length(kForecast, 0.01, generated) - generated;
  };
  EXPECT_LT(left(200), left(0));
  EXPECT_GT(left(800), left(400));
}

// The log mean of the greatest likelihood, by trying them all.
double likeliest_mean(const LengthPrior& prior, const std::vector<std::int32_t>& finished,
                      const std::vector<std::int32_t>& unfinished) {
  const double s = prior.sigma * std::sqrt(1.0 - prior.rho);
  const double k = (1.0 - prior.rho) / prior.rho;
  double best = 0.0;
  double most = -1e300;
  for (double m = 0.0; m < 12.0; m += 0.0005) {
    double log_likelihood = -0.5 * k * std::pow((m - prior.log_median) / s, 2);
    for (const std::int32_t tokens : finished)
      log_likelihood -= 0.5 * std::pow((std::log(tokens) - m) / s, 2);
    for (const std::int32_t tokens : unfinished) {
      if (tokens > 0)
        log_likelihood += std::log(0.5 * std::erfc((std::log(tokens) - m) / s / std::sqrt(2.0)));
    }
    if (log_likelihood > most) best = m;
    most = std::max(most, log_likelihood);
  }
  return best;
}

TEST(LengthPriorTest, ForecastRestsOnTheLikeliestMean) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 20; ++trial) {
    const double rho = 0.1 + 0.8 * static_cast<double>(trial) / 20.0;
    const LengthPrior prior{.log_median = 6.0, .sigma = 0.8, .rho = rho, .weight = 10};
    std::vector<std::int32_t> finished(random() % 4);
    std::vector<std::int32_t> unfinished(random() % 6);
    for (std::int32_t& tokens : finished) tokens = static_cast<std::int32_t>(100 + random() % 900);
    for (std::int32_t& tokens : unfinished) tokens = static_cast<std::int32_t>(random() % 1000);
    const double log_mean = forecast(prior, finished, unfinished).log_mean;
    // The grid, and what is left out of responses far below the mean.
    EXPECT_NEAR(log_mean, likeliest_mean(prior, finished, unfinished), 0.003) << trial;
  }
}

TEST(LengthPriorTest, TheFirstToFinishIsNotTypical) {
  const std::vector<std::int32_t> finished = {50};
  const std::vector<std::int32_t> behind(7, 0);
  const std::vector<std::int32_t> level(7, 50);
  EXPECT_EQ(forecast(kHalf, finished, behind), forecast(kHalf, finished, {}));
  EXPECT_GT(forecast(kHalf, finished, level).log_mean,
            forecast(kHalf, finished, behind).log_mean + std::log(1.3));
}

TEST(LengthPriorTest, EqualAndAbsurdLengthsGiveFiniteBounds) {
  const LengthPrior equal{.log_median = 5.0, .sigma = 0.0, .rho = 0.0, .weight = 10};
  const std::vector<std::int32_t> far = {1 << 30};
  EXPECT_GT(upper_length(forecast(equal, {}, far), 1e-6, 0), 148);
  EXPECT_LE(upper_length(forecast(equal, far, far), 1e-6, 1 << 30), 1'000'000'000);
  EXPECT_GE(upper_length(forecast(equal, {}, {}), 1e-30, 1 << 29), 1 << 29);
  EXPECT_EQ(upper_length({.log_mean = -50.0, .deviation = 1.0}, 0.1, 0), 1);
}

}  // namespace
}  // namespace rondo::rollout
