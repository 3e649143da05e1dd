#include "train/gradient_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "train/test_units.h"

namespace rondo::train {
namespace {

constexpr double kOne = 0x1p36;

std::vector<float> random_values(std::size_t count, std::uint32_t seed) {
  std::vector<float> values;
  const Rng rng(seed, RngPurpose::kInit);
  for (std::size_t i = 0; i < count; ++i) {
    const auto words = rng.words({.position = static_cast<std::uint32_t>(i)});
    // All magnitudes from 2^-30 to 2^10, both signs.
    values.push_back(
        std::ldexp(static_cast<float>(words[0]) * 0x1p-31F - 1.0F, static_cast<int>(words[1] % 41) - 30));
  }
  return values;
}

class GradientSumTest : public ::testing::Test {
 protected:
  GradientSumTest() : layout_(testing::tiny_spec()), sum_(layout_, compute_.context()) { sum_.reset(); }

  std::size_t count(model::ParamIndex i) const { return static_cast<std::size_t>(layout_[i].count()); }

  model::ParamLayout layout_;
  testing::Compute compute_{2};
  GradientSum sum_;
};

TEST_F(GradientSumTest, HoldsTheRoundedValueInFixedPoint) {
  const model::ParamIndex i = layout_.layer(1).qkv;
  const std::int64_t cols = layout_[i].cols;
  const std::vector<float> values = random_values(static_cast<std::size_t>(2 * cols), 1);
  ASSERT_TRUE(sum_.add(i, 3, 2, values.data()));
  for (std::int64_t at = 0; at < layout_[i].count(); ++at) {
    const std::int64_t k = at - 3 * cols;
    const bool added = k >= 0 && k < 2 * cols;
    const double expected = added ? std::nearbyint(double{values[static_cast<std::size_t>(k)]} * kOne) : 0.0;
    ASSERT_EQ(static_cast<double>(sum_.data(i)[at]), expected) << at;
  }
}

TEST_F(GradientSumTest, AProductIsTheWeightGradientAdded) {
  const model::ParamIndex i = layout_.layer(1).down;
  const std::int64_t rows = layout_[i].rows, cols = layout_[i].cols, m = 9;
  const std::vector<float> dy = random_values(static_cast<std::size_t>(m * rows), 1);
  const std::vector<float> x = random_values(static_cast<std::size_t>(m * cols), 2);
  std::vector<float> dw(count(i));
  kernels::weight_grad(compute_.context(), {.dy = dy.data(),
                                            .lddy = rows,
                                            .x = x.data(),
                                            .ldx = cols,
                                            .dw = dw.data(),
                                            .lddw = cols,
                                            .rows = m,
                                            .cols = cols,
                                            .r_begin = 0,
                                            .r_end = rows,
                                            .continue_chain = false});
  const std::vector<float> before = random_values(count(i), 3);
  ASSERT_TRUE(sum_.add(i, 0, rows, before.data()));
  ASSERT_TRUE(sum_.add(i, 0, rows, dw.data()));
  const auto expected = gradient_bits(layout_, sum_);
  sum_.reset();
  ASSERT_TRUE(sum_.add(i, 0, rows, before.data()));
  ASSERT_TRUE(sum_.add_product(i, dy.data(), x.data(), m));
  EXPECT_EQ(gradient_bits(layout_, sum_), expected);
  const std::vector<float> huge(x.size(), 0x1p40F);
  EXPECT_EQ(sum_.add_product(i, dy.data(), huge.data(), m).error().code(), Code::kNumeric);
  EXPECT_TRUE(sum_.poisoned());
}

TEST_F(GradientSumTest, OrderAndGroupingOfAdditionsChangeNoBit) {
  const model::ParamIndex i = layout_.layer(0).gate_up;
  std::vector<std::vector<float>> parts;
  for (std::uint32_t s = 0; s < 6; ++s) parts.push_back(random_values(count(i), s));
  for (const auto& part : parts) ASSERT_TRUE(sum_.add(i, 0, layout_[i].rows, part.data()));
  const auto expected = gradient_bits(layout_, sum_);
  sum_.reset();
  const std::int64_t half = layout_[i].rows / 2, cols = layout_[i].cols;
  std::reverse(parts.begin(), parts.end());
  for (const auto& part : parts)
    ASSERT_TRUE(sum_.add(i, half, layout_[i].rows - half, part.data() + half * cols));
  for (const auto& part : parts) ASSERT_TRUE(sum_.add(i, 0, half, part.data()));
  EXPECT_TRUE(gradient_bits(layout_, sum_) == expected);
}

TEST_F(GradientSumTest, RowsMayRepeatInAddRows) {
  const model::ParamIndex i = layout_.embedding();
  const std::int64_t cols = layout_[i].cols;
  const std::vector<Token> rows = {5, 96, 5, 0, 5};
  const std::vector<float> values = random_values(rows.size() * static_cast<std::size_t>(cols), 2);
  for (int threads : {1, 2, 3}) {
    const testing::Compute compute(threads);
    GradientSum by_rows(layout_, compute.context()), one_by_one(layout_, compute.context());
    ASSERT_TRUE(by_rows.add_rows(i, rows, values.data()));
    for (std::size_t m = 0; m < rows.size(); ++m)
      ASSERT_TRUE(one_by_one.add(i, rows[m], 1, values.data() + static_cast<std::int64_t>(m) * cols));
    EXPECT_TRUE(gradient_bits(layout_, by_rows) == gradient_bits(layout_, one_by_one)) << threads;
  }
}

TEST_F(GradientSumTest, NanInfinityAndOverflowPoisonUntilReset) {
  const model::ParamIndex i = layout_.layer(2).down;
  const std::vector<float> good(count(i), 1.0F);
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 0x1p26F}) {
    std::vector<float> values = good;
    values.back() = bad;
    const auto failed = sum_.add(i, 0, layout_[i].rows, values.data());
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code(), Code::kNumeric);
    EXPECT_NE(failed.error().message().find("'" + layout_[i].name + "'"), std::string::npos);
    EXPECT_FALSE(sum_.add(layout_.final_norm(), 0, 1, good.data())) << "still poisoned";
    sum_.reset();
    EXPECT_TRUE(sum_.add(i, 0, layout_[i].rows, good.data()));
    sum_.reset();
  }
}

TEST_F(GradientSumTest, ASumThatOverflowsPoisons) {
  const float large = 0x1p25F;  // 2^61 units: four of them leave the range
  bool ok = true;
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(ok) << "after " << i;
    const std::vector<float> row(32, large);
    ok = sum_.add(layout_.final_norm(), 0, 1, row.data()).has_value();
  }
  EXPECT_FALSE(ok);
  EXPECT_TRUE(sum_.poisoned());
}

TEST_F(GradientSumTest, ResetZeroesEverything) {
  for (std::size_t i = 0; i < layout_.params().size(); ++i) {
    const auto param = static_cast<model::ParamIndex>(i);
    ASSERT_TRUE(sum_.add(param, 0, layout_[param].rows, random_values(count(param), 3).data()));
  }
  sum_.reset();
  for (std::int64_t bits : gradient_bits(layout_, sum_)) ASSERT_EQ(bits, 0);
  EXPECT_EQ(sum_.bytes(), static_cast<std::size_t>(layout_.total()) * 8);
}

}  // namespace
}  // namespace rondo::train
