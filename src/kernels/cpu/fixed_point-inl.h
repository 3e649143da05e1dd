// Sums in fixed point. Included once per target by Highway's foreach_target (no include guard of the usual
// kind).
#if defined(RONDO_KERNELS_CPU_FIXED_POINT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDO_KERNELS_CPU_FIXED_POINT_INL_H_
#undef RONDO_KERNELS_CPU_FIXED_POINT_INL_H_
#else
#define RONDO_KERNELS_CPU_FIXED_POINT_INL_H_
#endif

#include <cstring>

#include "kernels/cpu/fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::kernels::HWY_NAMESPACE {

using F64 = hn::ScalableTag<double>;
using I64 = hn::ScalableTag<std::int64_t>;
using HalfF32 = hn::Rebind<float, F64>;
using VD = hn::Vec<F64>;
using VI = hn::Vec<I64>;
constexpr int kDoubleLanes = static_cast<int>(hn::MaxLanes(F64()));

// Adding it to |x| < 2^51 leaves x, rounded to nearest even, in the low bits.
constexpr double kRoundMagic = 0x1.8p52;

HWY_INLINE VI rounded_bits(VD shifted) {
  return hn::Sub(hn::BitCast(I64(), shifted), hn::BitCast(I64(), hn::Set(F64(), kRoundMagic)));
}

// v rounded to nearest even, for |v| < 2^62 of at most 24 significant bits.
HWY_INLINE VI round_to_int64(VD v) {
#if HWY_TARGET == HWY_AVX3
  return hn::ConvertTo(I64(), hn::Round(v));
#else
  // The multiple of 2^32 nearest to v is even and the rest is exact, so rounding the rest rounds v.
  const F64 d;
  const VD magic = hn::Set(d, kRoundMagic);
  const VD high_shifted = hn::Add(hn::Mul(v, hn::Set(d, 0x1p-32)), magic);
  const VD high = hn::Sub(high_shifted, magic);
  const VD low = hn::Sub(v, hn::Mul(high, hn::Set(d, 0x1p32)));
  return hn::Add(hn::ShiftLeft<32>(rounded_bits(high_shifted)), rounded_bits(hn::Add(low, magic)));
#endif
}

/// Adds vectors of fp32 values to sums, and remembers whether all of it fitted.
class FixedPointAdder final {
 public:
  HWY_INLINE FixedPointAdder() : largest_(hn::Zero(I32())), overflow_(hn::Zero(I64())) {}

  /// sum[i] += round-to-nearest-even(x[i] * 2^36) for kLanes values.
  HWY_INLINE void add(VF x, std::int64_t* sum) {
    largest_ = hn::Max(largest_, hn::BitCast(I32(), hn::Abs(x)));
#if HWY_TARGET == HWY_SCALAR  // one lane: there are no halves
    add_doubles(hn::PromoteTo(F64(), x), sum);
#else
    add_doubles(hn::PromoteTo(F64(), hn::LowerHalf(x)), sum);
    add_doubles(hn::PromoteTo(F64(), hn::UpperHalf(HalfF32(), x)), sum + kDoubleLanes);
#endif
  }

  /// False if a value was NaN or at least 2^26 in magnitude, or a sum overflowed: the sums are then void.
  HWY_INLINE bool ok() const {
    constexpr std::int32_t kLimit = 0x4C800000;  // 2^26; the bits of NaN and infinity are larger
    return hn::AllTrue(I32(), hn::Lt(largest_, hn::Set(I32(), kLimit))) &&
           hn::AllFalse(I64(), hn::Lt(overflow_, hn::Zero(I64())));
  }

 private:
  using I32 = hn::RebindToSigned<F32>;

  HWY_INLINE void add_doubles(VD x, std::int64_t* sum) {
    const VI before = hn::LoadU(I64(), sum);
    const VI term = round_to_int64(hn::Mul(x, hn::Set(F64(), 0x1p36)));
    const VI after = hn::Add(before, term);
    hn::StoreU(after, I64(), sum);
    // Addition overflows when both terms have the sign that the result has not.
    overflow_ = hn::Or(overflow_, hn::And(hn::Xor(after, before), hn::Xor(after, term)));
  }

  hn::Vec<I32> largest_;  // bits of the largest magnitude
  VI overflow_;           // sign bits of the lanes that overflowed
};

/// fixed_point_add of op_table.h.
inline bool fixed_point_add(std::int64_t* sum, const float* x, std::int64_t count) {
  static_assert(kFixedPointBits == 36);
  FixedPointAdder adder;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) adder.add(hn::LoadU(F32(), x + i), sum + i);
  if (i < count) {
    const auto rest = static_cast<std::size_t>(count - i);
    std::int64_t sums[kLanes] = {};
    float terms[kLanes] = {};
    std::memcpy(sums, sum + i, rest * sizeof(std::int64_t));
    std::memcpy(terms, x + i, rest * sizeof(float));
    adder.add(hn::LoadU(F32(), terms), sums);
    std::memcpy(sum + i, sums, rest * sizeof(std::int64_t));
  }
  return adder.ok();
}

}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
