// Rotary tables against the fp64 functions of the C library.
#include "kernels/rope_tables.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rondo::kernels {
namespace {

// Both sides are within 2^-50 of the true value, so after rounding to fp32 they may differ only where it lies
// that close to a tie, and then by one step.
class Comparison {
 public:
  void add(float actual, double expected) {
    ++count_;
    const auto rounded = static_cast<float>(expected);
    if (actual == rounded) return;
    ++ties_;
    EXPECT_TRUE(actual == std::nextafter(rounded, 2.0F) || actual == std::nextafter(rounded, -2.0F))
        << actual << " vs " << expected;
  }
  /// About one value in 2^25 may be such a tie; ten times that is allowed, and one at least.
  void expect_only_rare_ties() const { EXPECT_LE(ties_, 1 + count_ * 10 / (1 << 25)); }

 private:
  std::int64_t count_ = 0, ties_ = 0;
};

void compare_with_libm(std::int64_t positions, const std::vector<float>& frequencies) {
  const auto tables = make_rope_tables(positions, frequencies);
  ASSERT_TRUE(tables.has_value());
  ASSERT_EQ(tables->cosine.size(), static_cast<std::size_t>(positions) * frequencies.size());
  ASSERT_EQ(tables->sine.size(), tables->cosine.size());
  Comparison comparison;
  std::size_t i = 0;
  for (std::int64_t position = 0; position < positions; ++position)
    for (const float frequency : frequencies) {
      const auto angle = static_cast<double>(static_cast<float>(position) * frequency);
      comparison.add(tables->cosine[i], std::cos(angle));
      comparison.add(tables->sine[i], std::sin(angle));
      ++i;
    }
  comparison.expect_only_rare_ties();
}

TEST(RopeTablesTest, CosineAndSineAreCorrectlyRounded) {
  compare_with_libm(8192, rope_inverse_frequencies(64, 100000.0F));
}

TEST(RopeTablesTest, LargeAnglesKeepTheirPrecision) {
  compare_with_libm(kMaxRopePositions, {1.0F});
}

TEST(RopeTablesTest, InverseFrequenciesAreRoundedPowers) {
  for (const float theta : {1.0F, 10000.0F, 100000.0F, 500000.0F, 1e6F, 5e6F})
    for (const std::int32_t head_dim : {2, 64, 80, 128, 256}) {
      const auto frequencies = rope_inverse_frequencies(head_dim, theta);
      ASSERT_EQ(frequencies.size(), static_cast<std::size_t>(head_dim / 2));
      for (std::int32_t i = 0; i < head_dim / 2; ++i) {
        const auto exponent = static_cast<double>(static_cast<float>(2 * i) / static_cast<float>(head_dim));
        const auto power = static_cast<float>(std::pow(static_cast<double>(theta), exponent));
        EXPECT_EQ(frequencies[static_cast<std::size_t>(i)], 1.0F / power) << theta << " at " << i;
      }
    }
}

TEST(RopeTablesTest, PositionZeroIsTheIdentity) {
  const auto tables = make_rope_tables(1, 8, 10000.0F);
  ASSERT_TRUE(tables.has_value());
  EXPECT_EQ(tables->half, 4);
  EXPECT_EQ(tables->cosine, std::vector<float>(4, 1.0F));
  EXPECT_EQ(tables->sine, std::vector<float>(4, 0.0F));
}

TEST(RopeTablesTest, RefusesWhatItCannotCompute) {
  EXPECT_FALSE(make_rope_tables(kMaxRopePositions + 1, 8, 10000.0F).has_value());
  EXPECT_FALSE(make_rope_tables(-1, 8, 10000.0F).has_value());
  EXPECT_FALSE(make_rope_tables(4, 7, 10000.0F).has_value());
  EXPECT_FALSE(make_rope_tables(4, 8, 0.5F).has_value());
  EXPECT_FALSE(make_rope_tables(4, 8, std::nanf("")).has_value());
  EXPECT_FALSE(make_rope_tables(4, std::vector<float>{1.5F}).has_value());
  EXPECT_FALSE(make_rope_tables(4, std::vector<float>{std::nanf("")}).has_value());
}

}  // namespace
}  // namespace rondo::kernels
