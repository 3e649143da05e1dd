// exp, log and sigmoid: every target against the plain code bit for bit, and the plain code against libm in
// double precision.
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>

#include "kernels/op_table_test.h"
#include "kernels/reference_math.h"

namespace rondo::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kSmallest = std::numeric_limits<float>::min();

using VectorFunction = void (*)(const float*, float*, std::int64_t);

// Every `step`th float of either sign, infinities and NaNs included.
std::vector<float> all_floats(std::uint32_t step) {
  std::vector<float> values;
  for (std::uint64_t bits = 0; bits <= 0xFFFFFFFFU; bits += step)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  return values;
}

// NaN results are compared as NaN, all others by their bits.
void expect_function(VectorFunction function, float (*reference)(float), const std::vector<float>& inputs) {
  std::vector<float> actual(inputs.size());
  function(inputs.data(), actual.data(), static_cast<std::int64_t>(inputs.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const float expected = reference(inputs[i]);
    if (std::isnan(expected))
      ASSERT_TRUE(std::isnan(actual[i])) << inputs[i];
    else
      ASSERT_EQ(std::bit_cast<std::uint32_t>(actual[i]), std::bit_cast<std::uint32_t>(expected)) << inputs[i];
  }
}

TEST(MathTest, EveryTargetEqualsThePlainCode) {
  const std::vector<float> inputs = all_floats(20011);
  for_each_target([&](const OpTable& target) {
    expect_function(target.exp, reference::exp, inputs);
    expect_function(target.log, reference::log, inputs);
    expect_function(target.sigmoid, reference::sigmoid, inputs);
  });
}

TEST(MathTest, EveryTargetEqualsThePlainCodeAtTheLimits) {
  std::vector<float> inputs;
  for (const float centre : {0.0F, 1.0F, -87.33F, 88.7F, kSmallest, 0.70710678F, 1.41421356F}) {
    inputs.push_back(centre);
    inputs.push_back(std::nextafter(centre, kInfinity));
    inputs.push_back(std::nextafter(centre, -kInfinity));
  }
  for_each_target([&](const OpTable& target) {
    expect_function(target.exp, reference::exp, inputs);
    expect_function(target.log, reference::log, inputs);
    expect_function(target.sigmoid, reference::sigmoid, inputs);
  });
}

// The largest error over `inputs`, in units in the last place of the correct result.
double worst_ulps(float (*function)(float), double (*exact)(double), const std::vector<float>& inputs) {
  double worst = 0;
  for (const float x : inputs) {
    const double expected = exact(static_cast<double>(x));
    const double ulp = std::ldexp(1.0, std::ilogb(static_cast<float>(expected)) - 23);
    worst = std::max(worst, std::abs(static_cast<double>(function(x)) - expected) / ulp);
  }
  return worst;
}

std::vector<float> floats_within(float low, float high, std::uint32_t step) {
  std::vector<float> inside;
  for (const float x : all_floats(step))
    if (x >= low && x <= high) inside.push_back(x);
  return inside;
}

TEST(MathTest, ExpIsWithinOneUlp) {
  EXPECT_LT(worst_ulps(reference::exp, std::exp, floats_within(-87.33F, 88.7F, 2003)), 1.0);
}

// log vanishes at 1, which is left out: there the result is exact.
TEST(MathTest, LogIsWithinOneUlp) {
  EXPECT_LT(worst_ulps(reference::log, std::log, floats_within(kSmallest, 0.99999F, 1009)), 1.0);
  EXPECT_LT(
      worst_ulps(reference::log, std::log, floats_within(1.00001F, std::numeric_limits<float>::max(), 1009)),
      1.0);
}

// An ulp each from exp, the sum and the division.
TEST(MathTest, SigmoidIsWithinThreeUlps) {
  const auto exact = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_LT(worst_ulps(reference::sigmoid, exact, floats_within(-87.0F, 87.0F, 2003)), 3.0);
}

TEST(MathTest, ValuesThatTheContractNames) {
  EXPECT_EQ(reference::exp(0.0F), 1.0F);
  EXPECT_EQ(reference::exp(-87.4F), 0.0F);
  EXPECT_EQ(reference::exp(-kInfinity), 0.0F);
  EXPECT_EQ(reference::exp(88.8F), kInfinity);
  EXPECT_GE(reference::exp(-87.33F), kSmallest);
  EXPECT_LT(reference::exp(88.7F), kInfinity);
  EXPECT_EQ(reference::log(1.0F), 0.0F);
  EXPECT_EQ(reference::log(0.0F), -kInfinity);
  EXPECT_EQ(reference::log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(reference::log(-1.0F)));
  EXPECT_EQ(reference::sigmoid(0.0F), 0.5F);
  EXPECT_EQ(reference::sigmoid(kInfinity), 1.0F);
  EXPECT_EQ(reference::sigmoid(-kInfinity), 0.0F);
}

}  // namespace
}  // namespace rondo::kernels
