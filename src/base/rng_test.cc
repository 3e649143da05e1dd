#include "base/rng.h"

#include <gtest/gtest.h>

#include <array>

namespace rondo {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Known answers of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(RngTest, PhiloxMatchesPublishedVectors) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox4x32_10({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox4x32_10({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
            (Words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(RngTest, EveryFieldOfTheCounterMatters) {
  const Rng rng(7, RngPurpose::kRollout);
  const std::uint64_t base = rng.bits64({.step = 1, .ordinal = 2, .sample = 3, .position = 4});
  EXPECT_NE(base, rng.bits64({.step = 2, .ordinal = 2, .sample = 3, .position = 4}));
  EXPECT_NE(base, rng.bits64({.step = 1, .ordinal = 3, .sample = 3, .position = 4}));
  EXPECT_NE(base, rng.bits64({.step = 1, .ordinal = 2, .sample = 4, .position = 4}));
  EXPECT_NE(base, rng.bits64({.step = 1, .ordinal = 2, .sample = 3, .position = 5}));
  EXPECT_NE(base, Rng(7, RngPurpose::kEval).bits64({.step = 1, .ordinal = 2, .sample = 3, .position = 4}));
  EXPECT_NE(base, Rng(8, RngPurpose::kRollout).bits64({.step = 1, .ordinal = 2, .sample = 3, .position = 4}));
}

TEST(RngTest, BelowIsUniformAndInRange) {
  const Rng rng(1, RngPurpose::kShuffle);
  std::array<int, 7> counts{};
  constexpr std::uint32_t kDraws = 70000;
  for (std::uint32_t i = 0; i < kDraws; ++i) {
    const std::uint64_t value = rng.below({.position = i}, counts.size());
    ASSERT_LT(value, counts.size());
    ++counts[value];
  }
  double chi_square = 0;
  for (int count : counts) chi_square += (count - 10000.0) * (count - 10000.0) / 10000.0;
  EXPECT_LT(chi_square, 22.46);  // 6 degrees of freedom, p = 0.001
}

TEST(RngTest, BelowReachesBothEndsOfALargeBound) {
  const Rng rng(1, RngPurpose::kInit);
  const std::uint64_t bound = std::uint64_t{1} << 63;
  bool low = false, high = false;
  for (std::uint32_t i = 0; i < 64; ++i) {
    const std::uint64_t value = rng.below({.position = i}, bound);
    low = low || value < bound / 2;
    high = high || value >= bound / 2;
  }
  EXPECT_TRUE(low && high);
}

}  // namespace
}  // namespace rondo
