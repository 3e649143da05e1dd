#include "train/loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace rondo::train {
namespace {

constexpr double kUlp = 0x1p-24;  // half a unit in the last place of fp32, relative

// The published formulas in double: clipped surrogate, k3 with verl's clamps.
double naive_loss(const LossConfig& c, double logprob, double old_logprob, double ref, double advantage) {
  const double ratio = std::exp(std::clamp(logprob - old_logprob, -20.0, 20.0));
  const double clipped = std::clamp(ratio, 1.0 - double{c.clip_ratio_low}, 1.0 + double{c.clip_ratio_high});
  double loss = -std::min(ratio * advantage, clipped * advantage);
  if (c.kl_loss_coef > 0) {
    const double d = std::clamp(ref - logprob, -20.0, 20.0);
    loss += double{c.kl_loss_coef} * std::min(std::exp(d) - d - 1.0, 10.0);
  }
  return loss;
}

TEST(LossTest, EqualPoliciesGiveMinusAdvantageExactly) {
  const LossConfig config{.kl_loss_coef = 0.1F};
  for (float logprob : {0.0F, -1e-6F, -0.7F, -13.25F})
    for (float advantage : {1.5F, -0.25F}) {
      const TokenLoss loss = token_loss(config, logprob, logprob, logprob, advantage);
      EXPECT_EQ(loss.ratio, 1.0F);
      EXPECT_EQ(loss.policy_loss, -advantage);
      EXPECT_EQ(loss.kl, 0.0F);
      EXPECT_EQ(loss.dlogprob, -advantage);
      EXPECT_FALSE(loss.clipped);
    }
}

TEST(LossTest, ClipsByHand) {
  const LossConfig config{.clip_ratio_low = 0.2F, .clip_ratio_high = 0.28F};
  const float up = std::log(1.5F), down = std::log(0.5F);
  struct Case {
    float log_ratio, advantage, loss;
    bool clipped;
  };
  const Case cases[] = {
      {up, 2.0F, -1.28F * 2.0F, true},    // a good token is already likelier: no more push
      {up, -2.0F, 1.5F * 2.0F, false},    // a bad token got likelier: full gradient
      {down, 2.0F, -0.5F * 2.0F, false},  // a good token got rarer: full gradient
      {down, -2.0F, 0.8F * 2.0F, true},   // a bad token is already rarer: no more push
      {std::log(1.27F), 2.0F, -1.27F * 2.0F, false},
      {std::log(0.81F), -2.0F, 0.81F * 2.0F, false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::Message() << "log ratio " << c.log_ratio << ", advantage " << c.advantage);
    const TokenLoss loss = token_loss(config, -2.0F + c.log_ratio, -2.0F, 0, c.advantage);
    EXPECT_NEAR(loss.policy_loss, c.loss, 1e-6);
    EXPECT_EQ(loss.clipped, c.clipped);
    if (c.clipped)
      EXPECT_EQ(loss.dlogprob, 0.0F);
    else
      EXPECT_EQ(loss.dlogprob, loss.policy_loss);  // d(-ratio * A) / d logprob = -ratio * A
  }
}

TEST(LossTest, ZeroAdvantageHasNoGradientAndIsNeverClipped) {
  for (float log_ratio : {-3.0F, 0.0F, 3.0F}) {
    const TokenLoss loss = token_loss({}, -5.0F + log_ratio, -5.0F, 0, 0.0F);
    EXPECT_EQ(loss.policy_loss, 0.0F);
    EXPECT_EQ(loss.dlogprob, 0.0F);
    EXPECT_FALSE(loss.clipped);
  }
}

TEST(LossTest, ValuesAndDerivativesFollowTheFormula) {
  const LossConfig config{.clip_ratio_low = 0.2F, .clip_ratio_high = 0.3F, .kl_loss_coef = 0.05F};
  constexpr double kStep = 1e-6;
  for (float logprob : {-0.01F, -0.9F, -4.0F, -15.0F})
    for (float old_offset : {-2.0F, -0.4F, -0.1F, 0.0F, 0.05F, 0.5F, 3.0F})
      for (float ref_offset : {-6.0F, -0.3F, 0.0F, 0.2F, 1.5F, 2.2F})
        for (float advantage : {-1.7F, -0.1F, 0.3F, 2.0F}) {
          const float old_logprob = logprob + old_offset, ref = logprob + ref_offset;
          SCOPED_TRACE(::testing::Message()
                       << logprob << ' ' << old_logprob << ' ' << ref << ' ' << advantage);
          const TokenLoss loss = token_loss(config, logprob, old_logprob, ref, advantage);
          const auto naive = [&](double x) { return naive_loss(config, x, old_logprob, ref, advantage); };
          // A handful of roundings, each relative to the largest term.
          const double size = std::exp(-double{old_offset}) * std::fabs(advantage) +
                              0.05 * (std::exp(double{ref_offset}) + 8);
          EXPECT_NEAR(loss.policy_loss + double{config.kl_loss_coef} * loss.kl, naive(logprob),
                      8 * kUlp * size);
          const double slope = (naive(logprob + kStep) - naive(logprob - kStep)) / (2 * kStep);
          EXPECT_NEAR(loss.dlogprob, slope, 8 * kUlp * size + 1e-8);
        }
}

TEST(LossTest, KlByHand) {
  const LossConfig config{.kl_loss_coef = 1.0F};
  const auto kl = [&](float logprob, float ref) { return token_loss(config, logprob, logprob, ref, 0.0F); };
  // logprob - ref = ln 2: 1/2 + ln 2 - 1, slope 1 - 1/2.
  EXPECT_NEAR(kl(-1.0F, -1.0F - std::log(2.0F)).kl, 0.5 + std::log(2.0) - 1.0, 1e-6);
  EXPECT_NEAR(kl(-1.0F, -1.0F - std::log(2.0F)).dlogprob, 0.5, 1e-6);
  // logprob - ref = -ln 2: 2 - ln 2 - 1, slope 1 - 2.
  EXPECT_NEAR(kl(-3.0F, -3.0F + std::log(2.0F)).kl, 1.0 - std::log(2.0), 1e-6);
  EXPECT_NEAR(kl(-3.0F, -3.0F + std::log(2.0F)).dlogprob, -1.0, 1e-6);
}

TEST(LossTest, KlIsNeverNegativeAndAccurateNearZero) {
  const LossConfig config{.kl_loss_coef = 1.0F};
  for (int i = -20000; i <= 20000; ++i) {
    const float d = static_cast<float>(i) * 1e-5F;
    const double expected = std::expm1(double{d}) - double{d};
    // Where the three terms are subtracted (|d| >= 1/8), two roundings near 1 remain of a value above 1/140.
    ASSERT_NEAR(token_loss(config, 0.0F, 0.0F, d, 0.0F).kl, expected, 140 * 4 * kUlp * expected) << d;
  }
}

TEST(LossTest, KlIsClampedAtTenAndHasNoSlopeThere) {
  const LossConfig config{.kl_loss_coef = 1.0F};
  const TokenLoss loss = token_loss(config, -10.0F, -10.0F, -1.0F, 0.0F);  // e^9 - 10
  EXPECT_EQ(loss.kl, 10.0F);
  EXPECT_EQ(loss.dlogprob, 0.0F);
  // The other side grows linearly, to its clamp too.
  EXPECT_NEAR(token_loss(config, -1.0F, -1.0F, -9.0F, 0.0F).kl, std::exp(-8.0) + 8 - 1, 1e-5);
  EXPECT_EQ(token_loss(config, -1.0F, -1.0F, -31.0F, 0.0F).kl, 10.0F);
}

TEST(LossTest, LogRatioIsClampedAtTwenty) {
  const TokenLoss up = token_loss({}, -1.0F, -40.0F, 0, -1.0F);
  EXPECT_NEAR(up.ratio, std::exp(20.0), 1e-5 * std::exp(20.0));
  EXPECT_EQ(up.dlogprob, 0.0F);
  const TokenLoss down = token_loss({}, -40.0F, -1.0F, 0, 1.0F);
  EXPECT_NEAR(down.ratio, std::exp(-20.0), 1e-5 * std::exp(-20.0));
  EXPECT_EQ(down.dlogprob, 0.0F);
}

TEST(LossTest, TheReferenceIsIgnoredWithoutAKlTerm) {
  const TokenLoss loss = token_loss({}, -1.0F, -1.0F, std::nanf(""), 1.0F);
  EXPECT_EQ(loss.kl, 0.0F);
  EXPECT_EQ(loss.dlogprob, -1.0F);
}

TEST(LossTest, TheEntropyBonusLowersTheLoss) {
  EXPECT_EQ(token_loss({.entropy_coeff = 0.01F}, -1.0F, -1.0F, 0, 1.0F).dentropy, -0.01F);
}

TEST(LossTest, AdvantagesByHand) {
  // mean 2, deviations -2, -1, 1, 2; sum of squares 10, over n - 1 = 3.
  const std::vector<double> rewards = {0, 1, 3, 4};
  const double deviation = std::sqrt(10.0 / 3.0);
  const std::vector<float> scaled = group_advantages({.adv_epsilon = 1e-6}, rewards);
  const std::vector<float> plain = group_advantages({.norm_adv_by_std = false}, rewards);
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    EXPECT_EQ(plain[i], static_cast<float>(rewards[i] - 2.0));
    EXPECT_EQ(scaled[i], static_cast<float>((rewards[i] - 2.0) / (deviation + 1e-6)));
  }
}

TEST(LossTest, EqualRewardsGiveExactZeros) {
  for (double reward : {0.0, 1.0, 0.1, 1e-30, -3.7})  // 0.1 * 7 / 7 is not 0.1
    for (std::size_t n : {2U, 3U, 7U, 16U})
      for (bool by_std : {true, false})
        for (float a : group_advantages({.norm_adv_by_std = by_std}, std::vector<double>(n, reward)))
          EXPECT_EQ(a, 0.0F);
}

TEST(LossTest, AGroupOfOneKeepsItsReward) {
  EXPECT_EQ(group_advantages({.adv_epsilon = 1e-6}, std::vector<double>{3.0}),
            std::vector<float>{static_cast<float>(3.0 / (1.0 + 1e-6))});
  EXPECT_EQ(group_advantages({.norm_adv_by_std = false}, std::vector<double>{3.0}), std::vector<float>{3.0F});
  EXPECT_TRUE(group_advantages({}, std::vector<double>{}).empty());
}

TEST(LossTest, WeightsAndNormaliserGiveTheStatedMeans) {
  const std::vector<std::int64_t> lengths = {1, 4, 0, 3};
  const auto total = [&](LossAggregation mode) {
    double sum = 0;  // every token's loss is the number of its sample
    std::int64_t tokens = 0;
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      sum += static_cast<double>(lengths[s]) * token_weight(mode, lengths[s]) * static_cast<double>(s + 1);
      tokens += lengths[s];
    }
    return sum / normalizer(mode, tokens, 4);
  };
  EXPECT_DOUBLE_EQ(total(LossAggregation::kTokenMean), (1 * 1 + 4 * 2 + 3 * 4) / 8.0);
  EXPECT_NEAR(total(LossAggregation::kSeqMeanTokenMean), (1 + 2 + 4) / 4.0, 4 * kUlp);
  EXPECT_EQ(normalizer(LossAggregation::kTokenMean, 0, 0), 1.0);
}

}  // namespace
}  // namespace rondo::train
