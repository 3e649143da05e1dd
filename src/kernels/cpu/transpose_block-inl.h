// The transpose of one block of 16 x 16 elements. Included once per target by Highway's foreach_target (no
// include guard of the usual kind).
#if defined(RONDO_KERNELS_CPU_TRANSPOSE_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDO_KERNELS_CPU_TRANSPOSE_BLOCK_INL_H_
#undef RONDO_KERNELS_CPU_TRANSPOSE_BLOCK_INL_H_
#else
#define RONDO_KERNELS_CPU_TRANSPOSE_BLOCK_INL_H_
#endif

#include "kernels/cpu/fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::kernels::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

template <class Raw>
HWY_INLINE void transpose_block(const Raw* in, Raw* out) {
  for (int i = 0; i < kPanel; ++i)
    for (int j = 0; j < kPanel; ++j) out[j * kPanel + i] = in[i * kPanel + j];
}

#else

// out[j * 16 + i] = in[i * 16 + j] for an N x N corner, N = lanes of 128 bits: log2(N) rounds, each of which
// interleaves vector i with vector i + N / 2.
template <class Raw>
HWY_INLINE void transpose_corner(const Raw* in, Raw* out) {
  const hn::FixedTag<Raw, 16 / sizeof(Raw)> d;
  constexpr int kSize = 16 / sizeof(Raw);
  using Vector = hn::Vec<decltype(d)>;
  Vector rows[kSize];
#pragma GCC unroll 16
  for (int i = 0; i < kSize; ++i) rows[i] = hn::LoadU(d, in + i * kPanel);
#pragma GCC unroll 4
  for (int round = 1; round < kSize; round *= 2) {
    Vector next[kSize];
#pragma GCC unroll 16
    for (int i = 0; i < kSize / 2; ++i) {
      next[2 * i] = hn::InterleaveLower(d, rows[i], rows[i + kSize / 2]);
      next[2 * i + 1] = hn::InterleaveUpper(d, rows[i], rows[i + kSize / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kSize; ++i) rows[i] = next[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kSize; ++i) hn::StoreU(rows[i], d, out + i * kPanel);
}

template <class Raw>
HWY_INLINE void transpose_block(const Raw* in, Raw* out) {
  constexpr int kSize = 16 / sizeof(Raw);
  for (int i = 0; i < kPanel; i += kSize)
    for (int j = 0; j < kPanel; j += kSize) transpose_corner(in + i * kPanel + j, out + j * kPanel + i);
}

#endif

}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
