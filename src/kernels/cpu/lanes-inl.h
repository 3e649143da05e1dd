// Loops over rows of any length, one vector at a time: whole vectors, then a part that touches nothing beyond
// the end; and reduce16 of op_table.h on them. Included once per target by Highway's foreach_target.
#if defined(RONDO_KERNELS_CPU_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDO_KERNELS_CPU_LANES_INL_H_
#undef RONDO_KERNELS_CPU_LANES_INL_H_
#else
#define RONDO_KERNELS_CPU_LANES_INL_H_
#endif

#include <cstring>

#include "kernels/cpu/fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::kernels::HWY_NAMESPACE {

/// Access to a whole vector.
struct WholeVector {
  HWY_INLINE VF load(const float* p) const { return hn::LoadU(F32(), p); }
  HWY_INLINE void store(VF v, float* p) const { hn::StoreU(v, F32(), p); }
};

/// Access to the first `count` < kLanes elements; the other lanes load as zero and are not stored.
struct PartVector {
  std::size_t count;

  HWY_INLINE VF load(const float* p) const {
    alignas(64) float buffer[kLanes] = {};
    std::memcpy(buffer, p, count * sizeof(float));
    return hn::Load(F32(), buffer);
  }
  HWY_INLINE void store(VF v, float* p) const {
    alignas(64) float buffer[kLanes];
    hn::Store(v, F32(), buffer);
    std::memcpy(p, buffer, count * sizeof(float));
  }
};

/// Calls body(i, io) for every vector of [0, count): elements i, i + 1, … through io.load and io.store.
template <class Body>
HWY_INLINE void for_each_vector(std::int64_t count, const Body& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, WholeVector());
  if (i < count) body(i, PartVector{static_cast<std::size_t>(count - i)});
}

/// Sixteen virtual lanes of a reduction, each starting at +0.
struct Lanes16 {
  VF v[kPanelVectors];

  HWY_INLINE Lanes16() {
    for (VF& lanes : v) lanes = hn::Zero(F32());
  }
  /// The fixed tree of op_table.h.
  HWY_INLINE float combine() const {
    VF lanes[kPanelVectors];
    for (int i = 0; i < kPanelVectors; ++i) lanes[i] = v[i];
#pragma GCC unroll 4
    for (int width = kPanelVectors / 2; width > 0; width /= 2)
      for (int i = 0; i < width; ++i) lanes[i] = hn::Add(lanes[i], lanes[i + width]);
    return add_halves(F32(), lanes[0]);
  }

 private:
  template <class D, class V>
  static HWY_INLINE float add_halves([[maybe_unused]] D d, V sum) {
#if HWY_TARGET != HWY_SCALAR
    if constexpr (hn::MaxLanes(d) > 4) {
      const hn::Half<D> half;
      return add_halves(half, hn::Add(hn::LowerHalf(half, sum), hn::UpperHalf(half, sum)));
    } else {
      const auto pairs = hn::Add(sum, hn::Shuffle1032(sum));
      return hn::GetLane(hn::Add(pairs, hn::Shuffle2301(pairs)));
    }
#else
    return hn::GetLane(sum);
#endif
  }
};

/// Walks [0, count) in groups of 16: calls body(i, io, j) for the vector at element i, which belongs to
/// vector j of the lanes. In a part, `io` is a PartVector, and the body must leave its other lanes alone.
template <class Body>
HWY_INLINE void for_each_in_lanes(std::int64_t count, const Body& body) {
  std::int64_t i = 0;
  for (; i + kReduceLanes <= count; i += kReduceLanes)
    for (int j = 0; j < kPanelVectors; ++j) body(i + j * kLanes, WholeVector(), j);
  for (int j = 0; i < count; i += kLanes, ++j) {
    if (count - i >= kLanes)
      body(i, WholeVector(), j);
    else
      body(i, PartVector{static_cast<std::size_t>(count - i)}, j);
  }
}

/// `next` in the lanes that `io` covers, `previous` in the others.
HWY_INLINE VF keep_lanes(WholeVector /*io*/, VF next, VF /*previous*/) {
  return next;
}
HWY_INLINE VF keep_lanes(PartVector io, VF next, VF previous) {
  return hn::IfThenElse(hn::FirstN(F32(), io.count), next, previous);
}

/// reduce16 over [0, count): lane = step(i, io, lane), element by element.
template <class Step>
HWY_INLINE float reduce16(std::int64_t count, const Step& step) {
  Lanes16 lanes;
  for_each_in_lanes(count, [&](std::int64_t i, auto io, int j) {
    lanes.v[j] = keep_lanes(io, step(i, io, lanes.v[j]), lanes.v[j]);
  });
  return lanes.combine();
}

}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
