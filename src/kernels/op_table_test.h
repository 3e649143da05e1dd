// What the op table's tests share: every target against the reference, bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "kernels/op_table.h"
#include "kernels/reference.h"

namespace rondo::kernels {

/// A fixed sequence of test values; the same on every platform.
class TestRandom final {
 public:
  explicit TestRandom(std::uint32_t seed) : engine_(seed) {}

  /// An integer in [low, high].
  int integer(int low, int high) {
    return low + static_cast<int>(engine_() % static_cast<std::uint32_t>(high - low + 1));
  }
  /// A value in [-scale, scale).
  float real(float scale = 1.0f) { return (static_cast<float>(engine_() >> 8) * 0x1p-23f - 1.0f) * scale; }
  std::vector<float> reals(std::size_t count, float scale = 1.0f) {
    std::vector<float> values(count);
    for (float& value : values) value = real(scale);
    return values;
  }

 private:
  std::mt19937 engine_;
};

/// Calls `body(table)` for every target of this machine, with the target's name in any failure message.
template <class Body>
void for_each_target(const Body& body) {
  for (const OpTable* target : available_targets()) {
    SCOPED_TRACE(target->name);
    body(*target);
  }
}

/// Fails at the first element whose bits differ.
inline void expect_same_bits(std::span<const float> actual, std::span<const float> expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(actual[i]), std::bit_cast<std::uint32_t>(expected[i]))
        << "element " << i << ": " << actual[i] << " vs " << expected[i];
}

inline constexpr DType kAllDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

}  // namespace rondo::kernels
