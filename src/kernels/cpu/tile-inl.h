// Small matrix products in registers, for attention and its gradient: every element is one fma chain with the
// depth ascending, vector lanes run over columns. Included once per target by Highway's foreach_target.
#if defined(RONDO_KERNELS_CPU_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDO_KERNELS_CPU_TILE_INL_H_
#undef RONDO_KERNELS_CPU_TILE_INL_H_
#else
#define RONDO_KERNELS_CPU_TILE_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::kernels::HWY_NAMESPACE {

// Rows and vectors of a register tile: accumulators, one row of vectors and a broadcast fit the register
// file (32 in AVX-512, 16 in AVX2).
inline constexpr int kTileRows = RONDO_HAS_FMA ? 6 : 2;
inline constexpr int kTileVectors = kLanes == 16 ? 4 : 2;

/// The left factor: element (r, t) at data[r * row_stride + t * step].
struct LeftFactor {
  const float* data;
  std::ptrdiff_t row_stride;
  std::ptrdiff_t step;
};

/// The right factor: row t at data + t * stride, in storage type Stored. While it is read, as much is fetched
/// from `meanwhile`, which is read later (null: nothing is): a line or two for each row, for fetches in one
/// burst would fill the line buffers, which loads need as well.
template <class Stored>
struct RightFactor {
  const typename Stored::Raw* data;
  std::ptrdiff_t stride;
  const std::byte* meanwhile = nullptr;
};

HWY_INLINE void fetch_lines(const std::byte* from, std::ptrdiff_t bytes) {
  constexpr std::ptrdiff_t kLine = 64;
  for (std::ptrdiff_t at = 0; at < bytes; at += kLine) __builtin_prefetch(from + at, 0, 2);
}

// Where sums start and go. start(row, col) is the first value of the chains of one vector, finish(row, col,
// sum) takes their results.

/// c = sum * scale.
struct StoreScaled {
  float* c;
  std::ptrdiff_t stride;
  float scale;
  HWY_INLINE VF start(int, int) const { return hn::Zero(F32()); }
  HWY_INLINE void finish(int row, int col, VF sum) const {
    hn::StoreU(hn::Mul(sum, hn::Set(F32(), scale)), F32(), c + row * stride + col);
  }
};

/// c = sum.
struct Store {
  float* c;
  std::ptrdiff_t stride;
  HWY_INLINE VF start(int, int) const { return hn::Zero(F32()); }
  HWY_INLINE void finish(int row, int col, VF sum) const { hn::StoreU(sum, F32(), c + row * stride + col); }
};

/// The chains go on from the present c.
struct Continue {
  float* c;
  std::ptrdiff_t stride;
  HWY_INLINE VF start(int row, int col) const { return hn::LoadU(F32(), c + row * stride + col); }
  HWY_INLINE void finish(int row, int col, VF sum) const { hn::StoreU(sum, F32(), c + row * stride + col); }
};

/// c = fma(c, keep[row], sum * take[row]).
struct Combine {
  float* c;
  std::ptrdiff_t stride;
  const float* keep;
  const float* take;
  HWY_INLINE VF start(int, int) const { return hn::Zero(F32()); }
  HWY_INLINE void finish(int row, int col, VF sum) const {
    const F32 d;
    float* p = c + row * stride + col;
    hn::StoreU(fma(hn::LoadU(d, p), hn::Set(d, keep[row]), hn::Mul(sum, hn::Set(d, take[row]))), d, p);
  }
};

// The tile at (row, col), its chains in `sum`.
template <bool kFetches, int kRows, int kVectors, class Stored>
HWY_INLINE void multiply_steps(LeftFactor left, RightFactor<Stored> right, int depth,
                               VF (&sum)[kRows][kVectors]) {
  const std::ptrdiff_t bytes = right.stride * std::ptrdiff_t{sizeof(typename Stored::Raw)};
  for (int t = 0; t < depth; ++t, left.data += left.step, right.data += right.stride) {
    VF x[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) x[v] = Stored::load(right.data + v * kLanes);
    if constexpr (kFetches) fetch_lines(right.meanwhile + t * bytes, bytes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const VF w = hn::Set(F32(), left.data[r * left.row_stride]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = fma(w, x[v], sum[r][v]);
    }
  }
}

template <int kRows, int kVectors, class Stored, class Out>
HWY_NOINLINE void register_tile(LeftFactor a, RightFactor<Stored> b, int depth, Out out, int row, int col) {
  VF sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[r][v] = out.start(row + r, col + v * kLanes);
  const LeftFactor left = {a.data + row * a.row_stride, a.row_stride, a.step};
  const RightFactor<Stored> right = {b.data + col, b.stride, b.meanwhile};
  const bool is_first = row == 0 && col == 0;  // of the tiles that read these rows
  if (is_first && b.meanwhile != nullptr)
    multiply_steps<true>(left, right, depth, sum);
  else
    multiply_steps<false>(left, right, depth, sum);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) out.finish(row + r, col + v * kLanes, sum[r][v]);
}

// The rows that are left, fewer than kRows + 1, in one tile.
template <int kRows, int kVectors, class Stored, class Out>
void last_rows(LeftFactor a, RightFactor<Stored> b, int depth, Out out, int row, int rows, int col) {
  if constexpr (kRows > 0) {
    if (rows == kRows) return register_tile<kRows, kVectors, Stored, Out>(a, b, depth, out, row, col);
    last_rows<kRows - 1, kVectors, Stored, Out>(a, b, depth, out, row, rows, col);
  }
}

// All rows of `vectors` <= kVectors vectors of columns.
template <int kVectors, class Stored, class Out>
void column_strip(LeftFactor a, RightFactor<Stored> b, int depth, Out out, int rows, int vectors, int col) {
  if constexpr (kVectors > 1) {
    if (vectors < kVectors)
      return column_strip<kVectors - 1, Stored, Out>(a, b, depth, out, rows, vectors, col);
  }
  int row = 0;
  for (; row + kTileRows <= rows; row += kTileRows)
    register_tile<kTileRows, kVectors, Stored, Out>(a, b, depth, out, row, col);
  last_rows<kTileRows - 1, kVectors, Stored, Out>(a, b, depth, out, row, rows - row, col);
}

/// out(r, c) = sum over t < depth of a(r, t) * b(t, c), for r < rows and c < cols, a multiple of 16.
template <class Stored, class Out>
void multiply(LeftFactor a, RightFactor<Stored> b, int rows, int cols, int depth, Out out) {
  const int vectors = cols / kLanes;
  const int strips = (vectors + kTileVectors - 1) / kTileVectors;
  for (int i = 0, done = 0; i < strips; ++i) {
    const int count = (vectors - done + strips - i - 1) / (strips - i);  // strips as even as can be
    column_strip<kTileVectors, Stored, Out>(a, b, depth, out, rows, count, done * kLanes);
    done += count;
  }
}

/// Rows of attention's scratch are whole panels wide.
constexpr int round_up(int count) {
  return (count + kPanel - 1) / kPanel * kPanel;
}

/// `rows` rows of `cols` stored values as fp32 rows of round_up(cols), padded with zeros. `meanwhile` as in
/// RightFactor.
template <class Stored>
void widen(const typename Stored::Raw* in, int rows, int cols, const std::byte* meanwhile, float* out) {
  const int whole = cols / kLanes * kLanes;
  const std::ptrdiff_t bytes = cols * std::ptrdiff_t{sizeof(typename Stored::Raw)};
  for (int r = 0; r < rows; ++r, in += cols, out += round_up(cols)) {
    if (meanwhile != nullptr) fetch_lines(meanwhile + r * bytes, bytes);
    for (int c = 0; c < whole; c += kLanes) hn::StoreU(Stored::load(in + c), F32(), out + c);
    for (int c = whole; c < cols; ++c) out[c] = Stored::load_one(in + c);
    std::fill(out + cols, out + round_up(cols), 0.0F);
  }
}

}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
