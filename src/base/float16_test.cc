#include "base/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

namespace rondo {
namespace {

TEST(Float16Test, EveryHalfSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = half_to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(value))));
    } else {
      ASSERT_EQ(float_to_half(value), half);
    }
  }
}

// The nearest half is found by comparing exact distances in double to both neighbours.
TEST(Float16Test, HalfRoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const double low = half_to_float(static_cast<std::uint16_t>(bits));
    const double high = half_to_float(static_cast<std::uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    const std::uint32_t even = (bits & 1u) == 0 ? bits : bits + 1;
    ASSERT_EQ(float_to_half(middle), even) << bits;
    ASSERT_EQ(float_to_half(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(float_to_half(std::nextafter(middle, 1e30f)), bits + 1);
  }
  EXPECT_EQ(float_to_half(65519.0f), 0x7BFF);
  EXPECT_EQ(float_to_half(65520.0f), 0x7C00);
  EXPECT_EQ(float_to_half(-65520.0f), 0xFC00);
}

TEST(Float16Test, Bfloat16RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7F7F; ++bits) {
    const auto half_way = std::bit_cast<float>((bits << 16) | 0x8000u);
    ASSERT_EQ(float_to_bfloat16(half_way), (bits & 1u) == 0 ? bits : bits + 1);
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>((bits << 16) | 0x7FFFu)), bits);
    ASSERT_EQ(float_to_bfloat16(std::bit_cast<float>((bits << 16) | 0x8001u)), bits + 1);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(bfloat16_to_float(static_cast<std::uint16_t>(bits))), bits << 16);
  }
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::nanf("")))));
}

}  // namespace
}  // namespace rondo
