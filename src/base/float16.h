// Scalar conversions between fp32 and the 16-bit storage types, round to nearest even.
#pragma once

#include <cstdint>

namespace rondo {

/// IEEE binary16 bits of `value`; overflow gives infinity, NaN stays NaN (quiet).
std::uint16_t float_to_half(float value);
/// Exact.
float half_to_float(std::uint16_t bits);

/// bfloat16 bits of `value`; NaN stays NaN (quiet).
std::uint16_t float_to_bfloat16(float value);
/// Exact.
float bfloat16_to_float(std::uint16_t bits);

/// Largest finite binary16 value.
inline constexpr float kHalfMax = 65504.0f;

}  // namespace rondo
