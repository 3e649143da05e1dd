// Fits against the lengths they were drawn from, and forecasts worked out by hand.
#include "rollout/length_prior.h"

#include <gtest/gtest.h>

#include <cmath>
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
                          R"({"log_median": 1, "sigma": 1, "rho": 0.95, "weight": 1})",
                          R"({"log_median": 1, "sigma": -1, "rho": 0.5, "weight": 1})",
                          R"({"log_median": 1e308, "sigma": 1, "rho": 0.5, "weight": 1})",
                          R"({"log_median": 1, "sigma": 1, "rho": 0.5, "weight": -1})",
                          R"({"log_median": "1", "sigma": 1, "rho": 0.5, "weight": 1})"}) {
    const auto read = parse_length_prior(bad);
    ASSERT_FALSE(read.has_value()) << bad;
    EXPECT_EQ(read.error().code(), Code::kDataLoss);
  }
}

TEST(LengthPriorTest, ForecastShrinksToThePrior) {
  // rho = 1/2: the prior weighs as much as one response.
  const LengthPrior prior{.log_median = std::log(100.0), .sigma = 1.0, .rho = 0.5, .weight = 10};
  std::vector<std::int32_t> none;
  const GroupForecast unknown = forecast(prior, 2.0, {}, none);
  EXPECT_EQ(unknown.revise_above, 100);
  EXPECT_EQ(unknown.upper_tokens, static_cast<std::int64_t>(std::ceil(100.0 * std::exp(2.0))));
  const std::vector<std::int32_t> finished = {400};
  const GroupForecast known = forecast(prior, 2.0, finished, none);
  EXPECT_NEAR(static_cast<double>(known.revise_above), 200, 1);
  const double width = 2.0 * std::sqrt(0.5) * std::sqrt(1.5);
  EXPECT_NEAR(static_cast<double>(known.upper_tokens), 200 * std::exp(width), 1);
}

TEST(LengthPriorTest, UnfinishedResponsesCountOnceTheyAreBeyondTheMedian) {
  const LengthPrior prior{.log_median = std::log(100.0), .sigma = 1.0, .rho = 0.5, .weight = 10};
  std::vector<std::int32_t> below = {99, 0, 50};
  EXPECT_EQ(forecast(prior, 2.0, {}, below).revise_above, 100);
  // 400 lifts the median to 200; 150 is then below it.
  std::vector<std::int32_t> above = {150, 400};
  EXPECT_NEAR(static_cast<double>(forecast(prior, 2.0, {}, above).revise_above), 200, 1);
}

}  // namespace
}  // namespace rondo::rollout
