#include "kernels/reference_math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cpu/math_constants.h"

namespace rondo::kernels::reference {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// coefficients[0] + x * (coefficients[1] + x * (…)), Horner with one rounding per step.
template <int kCount>
float polynomial(const float (&coefficients)[kCount], float x) {
  float p = coefficients[kCount - 1];
  for (int i = kCount - 2; i >= 0; --i) p = std::fma(p, x, coefficients[i]);
  return p;
}

}  // namespace

float exp(float x) {
  if (std::isnan(x)) return x;
  if (x < math::kExpUnderflow) return 0.0F;
  if (x > math::kExpOverflow) return kInfinity;
  const float n = std::fma(x, math::kLog2E, math::kRoundMagic) - math::kRoundMagic;
  const float r = std::fma(-n, math::kLn2Low, std::fma(-n, math::kLn2High, x));
  const float p = std::fma(std::fma(polynomial(math::kExpPoly, r), r, 1.0F), r, 1.0F);
  return std::ldexp(p, static_cast<int>(n));
}

float log(float x) {
  if (std::isnan(x) || x == kInfinity) return x;
  if (x < 0.0F) return std::numeric_limits<float>::quiet_NaN();
  if (x < std::numeric_limits<float>::min()) return -kInfinity;
  const auto bits = std::bit_cast<std::int32_t>(x);
  const std::int32_t exponent = (bits - math::kLogSqrtHalfBits) >> 23;
  const auto e = static_cast<float>(exponent);
  const float f = std::ldexp(x, -exponent) - 1.0F;
  const float square = f * f;
  float y = std::fma(e, math::kLn2Low, (f * square) * polynomial(math::kLogPoly, f));
  y = std::fma(square, -0.5F, y);
  return std::fma(e, math::kLn2High, f + y);
}

float sigmoid(float x) {
  const float e = exp(-std::abs(x));
  return (x >= 0.0F ? 1.0F : e) / (1.0F + e);
}

}  // namespace rondo::kernels::reference
