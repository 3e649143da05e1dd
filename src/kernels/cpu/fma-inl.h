// Per-target basics for the kernels: a fused multiply-add on every target, loads that widen 16-bit storage.
// Included once per target by Highway's foreach_target (no include guard of the usual kind).
#if defined(RONDO_KERNELS_CPU_FMA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDO_KERNELS_CPU_FMA_INL_H_
#undef RONDO_KERNELS_CPU_FMA_INL_H_
#else
#define RONDO_KERNELS_CPU_FMA_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

#include "base/float16.h"
#include "kernels/types.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Targets whose MulAdd rounds once. The baseline is Highway's scalar target: one lane, std::fma.
#define RONDO_HAS_FMA (HWY_TARGET <= HWY_AVX2)

using F32 = hn::ScalableTag<float>;
using VF = hn::Vec<F32>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
inline constexpr int kPanelVectors = kPanel / kLanes;  // vectors of a 16-wide panel
static_assert(kLanes <= kPanel && kPanel % kLanes == 0);

/// a * b + c, rounded once.
HWY_INLINE VF fma(VF a, VF b, VF c) {
#if RONDO_HAS_FMA
  return hn::MulAdd(a, b, c);
#else
  const F32 d;
  alignas(64) float x[kLanes], y[kLanes], z[kLanes];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(c, d, z);
  for (int i = 0; i < kLanes; ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(d, z);
#endif
}

/// -(a * b) + c, rounded once.
HWY_INLINE VF fnma(VF a, VF b, VF c) {
  return fma(hn::Neg(a), b, c);
}

// Storage types as tags: load one vector of fp32 from unaligned storage; stores round to nearest even and
// give the bits of base/float16.h. kExponent: all its bits are set in what is not finite.
struct StoredF32 {
  using Raw = float;
  using Bits = std::uint32_t;
  static constexpr Bits kExponent = 0x7F800000;
  static constexpr DType kDType = DType::kF32;
  static HWY_INLINE VF load(const Raw* p) { return hn::LoadU(F32(), p); }
  static HWY_INLINE void store(VF v, Raw* p) { hn::StoreU(v, F32(), p); }
  static HWY_INLINE float load_one(const Raw* p) { return *p; }
  static HWY_INLINE void store_one(float v, Raw* p) { *p = v; }
};

struct StoredF16 {
  using Raw = std::uint16_t;
  using Bits = std::uint16_t;
  static constexpr Bits kExponent = 0x7C00;
  static constexpr DType kDType = DType::kF16;
  static HWY_INLINE VF load(const Raw* p) {
    const hn::Rebind<hwy::float16_t, F32> d16;
    return hn::PromoteTo(F32(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
  }
  static HWY_INLINE void store(VF v, Raw* p) {
#if RONDO_HAS_FMA  // and conversions in hardware
    const hn::Rebind<hwy::float16_t, F32> d16;
    hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(p));
#else
    alignas(64) float lanes[kLanes];
    hn::Store(v, F32(), lanes);
    for (int i = 0; i < kLanes; ++i) p[i] = float_to_half(lanes[i]);
#endif
  }
  static HWY_INLINE float load_one(const Raw* p) {
    return half_to_float(*p);
  }
  static HWY_INLINE void store_one(float v, Raw* p) {
    *p = float_to_half(v);
  }
};

struct StoredBF16 {
  using Raw = std::uint16_t;
  using Bits = std::uint16_t;
  static constexpr Bits kExponent = 0x7F80;
  static constexpr DType kDType = DType::kBF16;
  static HWY_INLINE VF load(const Raw* p) {
    const hn::Rebind<std::uint16_t, F32> d16;
    const hn::RebindToUnsigned<F32> du;
    return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, p))));
  }
  static HWY_INLINE void store(VF v, Raw* p) {
    const hn::Rebind<std::uint16_t, F32> d16;
    const hn::RebindToUnsigned<F32> du;
    const hn::RebindToSigned<F32> di;
    const auto bits = hn::BitCast(du, v);
    const auto high = hn::ShiftRight<16>(bits);
    const auto half = hn::Add(hn::Set(du, 0x7FFF), hn::And(high, hn::Set(du, 1)));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, half));
    const auto quiet = hn::Or(high, hn::Set(du, 0x40));
    const auto result = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, result)), d16, p);
  }
  static HWY_INLINE float load_one(const Raw* p) { return bfloat16_to_float(*p); }
  static HWY_INLINE void store_one(float v, Raw* p) { *p = float_to_bfloat16(v); }
};

/// Calls `body(Stored())` with the storage tag of `dtype`.
template <class Body>
HWY_INLINE void with_storage(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kF32:
      return body(StoredF32());
    case DType::kF16:
      return body(StoredF16());
    case DType::kBF16:
      return body(StoredBF16());
  }
}

}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
