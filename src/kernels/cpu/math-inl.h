// exp, log and sigmoid of the numbers contract, one vector at a time: only fused multiply-adds, single
// rounded operations and exact integer steps, so every lane of every target gives the bits of
// reference_math.h. Included once per target by Highway's foreach_target.
#if defined(RONDO_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDO_KERNELS_CPU_MATH_INL_H_
#undef RONDO_KERNELS_CPU_MATH_INL_H_
#else
#define RONDO_KERNELS_CPU_MATH_INL_H_
#endif

#include <limits>

#include "kernels/cpu/fma-inl.h"
#include "kernels/cpu/math_constants.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::kernels::HWY_NAMESPACE {

/// e^x within 1 ulp; exp(0) = 1; +0 for x < -87.33 and infinity for x > 88.7; NaN stays NaN.
HWY_INLINE VF exp(VF x) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const VF magic = hn::Set(d, math::kRoundMagic);
  const VF shifted = fma(x, hn::Set(d, math::kLog2E), magic);
  const VF n = hn::Sub(shifted, magic);
  const VF r = fnma(n, hn::Set(d, math::kLn2Low), fnma(n, hn::Set(d, math::kLn2High), x));
  VF p = hn::Set(d, math::kExpPoly[4]);
  for (int i = 3; i >= 0; --i) p = fma(p, r, hn::Set(d, math::kExpPoly[i]));
  const VF one = hn::Set(d, 1.0F);
  p = fma(fma(p, r, one), r, one);
  // The low bits of `shifted` hold n; adding n to the exponent of p scales it exactly.
  const auto scaled = hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  VF y = hn::BitCast(d, scaled);
  y = hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, math::kExpUnderflow)), y);
  y = hn::IfThenElse(hn::Gt(x, hn::Set(d, math::kExpOverflow)),
                     hn::Set(d, std::numeric_limits<float>::infinity()), y);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

/// ln(x) within 2 ulp for positive normal x; log(1) = 0; -infinity for 0 and denormals; NaN for negative x;
/// infinity and NaN stay.
HWY_INLINE VF log(VF x) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const auto bits = hn::BitCast(di, x);
  const auto exponent = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, math::kLogSqrtHalfBits)));
  const VF e = hn::ConvertTo(d, exponent);
  const VF f = hn::Sub(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(exponent))), hn::Set(d, 1.0F));
  VF p = hn::Set(d, math::kLogPoly[8]);
  for (int i = 7; i >= 0; --i) p = fma(p, f, hn::Set(d, math::kLogPoly[i]));
  const VF square = hn::Mul(f, f);
  VF y = fma(e, hn::Set(d, math::kLn2Low), hn::Mul(hn::Mul(f, square), p));
  y = fma(square, hn::Set(d, -0.5F), y);
  y = fma(e, hn::Set(d, math::kLn2High), hn::Add(f, y));
  const VF infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  y = hn::IfThenElse(hn::Lt(x, hn::Set(d, std::numeric_limits<float>::min())), hn::Neg(infinity), y);
  y = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Set(d, std::numeric_limits<float>::quiet_NaN()), y);
  return hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::Eq(x, infinity)), x, y);
}

/// 1 / (1 + e^-x), by e = exp(-|x|) so that nothing overflows.
HWY_INLINE VF sigmoid(VF x) {
  const F32 d;
  const VF one = hn::Set(d, 1.0F);
  const VF e = exp(hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Ge(x, hn::Zero(d)), one, e), hn::Add(one, e));
}

}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
