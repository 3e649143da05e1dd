// Fixed-point sums, gradient norm and AdamW: every target against the plain loops, edges by hand.
#include <cmath>
#include <limits>

#include "kernels/op_table_test.h"

namespace rondo::kernels {
namespace {

constexpr std::int64_t kOne = std::int64_t{1} << kFixedPointBits;
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

// A value of any magnitude that fixed_point_add takes, the smallest included.
float any_magnitude(TestRandom& random) {
  return std::ldexp(random.real(), random.integer(-60, 26));
}

// An integer of any magnitude below 2^62.
std::int64_t any_integer(TestRandom& random) {
  constexpr int kLimit = 0x3FFFFFFF;
  const std::int64_t high = random.integer(-kLimit, kLimit) * (std::int64_t{1} << 32);
  return (high + std::int64_t{4} * random.integer(0, kLimit)) >> random.integer(0, 60);
}

TEST(OptimizerTest, FixedPointAddEqualsThePlainLoop) {
  TestRandom random(1);
  for (int count = 0; count < 200; ++count) {
    std::vector<float> x;
    std::vector<std::int64_t> initial;
    for (int i = 0; i < count; ++i) {
      x.push_back(any_magnitude(random));
      initial.push_back(any_integer(random) / 4);
    }
    std::vector<std::int64_t> expected = initial;
    ASSERT_TRUE(reference::table().fixed_point_add(expected.data(), x.data(), count));
    for_each_target([&](const OpTable& t) {
      std::vector<std::int64_t> actual = initial;
      EXPECT_TRUE(t.fixed_point_add(actual.data(), x.data(), count));
      EXPECT_EQ(actual, expected);
    });
  }
}

TEST(OptimizerTest, FixedPointRoundsHalvesToEven) {
  constexpr float kUnit = 0x1p-36F;
  const std::vector<float> x = {0.5F * kUnit, 1.5F * kUnit, 2.5F * kUnit, -0.5F * kUnit,   -1.5F * kUnit,
                                0x1.8p-37F,   1.0F,         -3.25F,       0x1.000002p-13F, -0x1.fffffep25F};
  const std::vector<std::int64_t> expected = {
      0, 2, 2, 0, -2, 1, kOne, -13 * (kOne / 4), 0x800001, -(std::int64_t{0xFFFFFF} << 38)};
  for_each_target([&](const OpTable& t) {
    std::vector<std::int64_t> sum(x.size());
    EXPECT_TRUE(t.fixed_point_add(sum.data(), x.data(), static_cast<std::int64_t>(x.size())));
    EXPECT_EQ(sum, expected);
  });
}

TEST(OptimizerTest, FixedPointAddReportsWhatDoesNotFitWhereverItIs) {
  struct Case {
    float x;
    std::int64_t sum;
  };
  const Case cases[] = {{std::numeric_limits<float>::quiet_NaN(), 0},
                        {std::numeric_limits<float>::infinity(), 0},
                        {-std::numeric_limits<float>::infinity(), 0},
                        {0x1p26F, 0},
                        {-0x1p26F, 0},
                        {std::numeric_limits<float>::max(), 0},
                        {0x1p-36F, kMax},
                        {-0x1p-36F, -kMax - 1}};
  for_each_target([&](const OpTable& t) {
    for (const Case& bad : cases)
      for (std::size_t place = 0; place < 37; ++place) {
        std::vector<float> x(37, 1.0F);
        std::vector<std::int64_t> sum(37, -5);
        x[place] = bad.x;
        sum[place] = bad.sum;
        EXPECT_FALSE(t.fixed_point_add(sum.data(), x.data(), 37)) << bad.x << " at " << place;
      }
  });
}

TEST(OptimizerTest, FixedPointSumReachesTheEndsOfItsRange) {
  for_each_target([&](const OpTable& t) {
    std::int64_t high = kMax - 1, low = -kMax;
    const float up = 0x1p-36F, down = -0x1p-36F;
    EXPECT_TRUE(t.fixed_point_add(&high, &up, 1));
    EXPECT_TRUE(t.fixed_point_add(&low, &down, 1));
    EXPECT_EQ(high, kMax);
    EXPECT_EQ(low, -kMax - 1);
  });
}

TEST(OptimizerTest, SquaredNormEqualsThePlainLoop) {
  TestRandom random(2);
  for (int count = 0; count < 200; ++count) {
    std::vector<std::int64_t> grad;
    for (int i = 0; i < count; ++i) grad.push_back(any_integer(random));
    const double expected = reference::table().squared_norm(grad.data(), count, 0x1p-36 / 3);
    for_each_target([&](const OpTable& t) {
      EXPECT_EQ(std::bit_cast<std::uint64_t>(t.squared_norm(grad.data(), count, 0x1p-36 / 3)),
                std::bit_cast<std::uint64_t>(expected));
    });
  }
}

struct AdamWState {
  std::vector<float> master, m, v;
};

AdamWArgs adamw_args(AdamWState& state, const std::vector<std::int64_t>& grad) {
  return {.master = state.master.data(),
          .m = state.m.data(),
          .v = state.v.data(),
          .grad = grad.data(),
          .count = static_cast<std::int64_t>(grad.size()),
          .grad_scale = 0x1p-36 / 7,
          .clip = 0.75F,
          .lr = 1e-3F,
          .beta1 = 0.9F,
          .beta2 = 0.99F,
          .eps = 1e-8F,
          .weight_decay = 0.1F,
          .bias1 = 1 - 0.9F * 0.9F,
          .bias2 = 1 - 0.99F * 0.99F};
}

TEST(OptimizerTest, AdamWEqualsThePlainLoop) {
  TestRandom random(3);
  for (std::size_t count = 0; count < 100; ++count) {
    AdamWState initial{random.reals(count), random.reals(count), random.reals(count)};
    for (float& v : initial.v) v = std::abs(v);
    std::vector<std::int64_t> grad;
    for (std::size_t i = 0; i < count; ++i) grad.push_back(any_integer(random));
    AdamWState expected = initial;
    reference::table().adamw(adamw_args(expected, grad));
    for_each_target([&](const OpTable& t) {
      AdamWState actual = initial;
      t.adamw(adamw_args(actual, grad));
      expect_same_bits(actual.master, expected.master);
      expect_same_bits(actual.m, expected.m);
      expect_same_bits(actual.v, expected.v);
    });
  }
}

TEST(OptimizerTest, AdamWFollowsTheFormula) {
  AdamWState state{{2.0F}, {0.5F}, {0.25F}};
  const std::vector<std::int64_t> grad = {7 * kOne};
  reference::table().adamw(adamw_args(state, grad));
  const double g = 0.75, m = 0.9 * 0.5 + 0.1 * g, v = 0.99 * 0.25 + 0.01 * g * g;
  const double step = m / (1 - 0.81) / (std::sqrt(v / (1 - 0.9801)) + 1e-8);
  // A few roundings of 2^-24 each; bias2 = 0.0199 comes out of a subtraction that loses six bits.
  EXPECT_NEAR(state.m[0], m, 1e-6);
  EXPECT_NEAR(state.v[0], v, 1e-6);
  EXPECT_NEAR(state.master[0], 2.0 - 1e-3 * (step + 0.1 * 2.0), 1e-6);
}

}  // namespace
}  // namespace rondo::kernels
