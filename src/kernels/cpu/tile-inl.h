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

/// The right factor: row t at data + t * stride, in storage type Stored. One that lies in memory is fetched
/// ahead as it is read, and behind its end the first rows at `follow`, which is read next.
template <class Stored>
struct RightFactor {
  const typename Stored::Raw* data;
  std::ptrdiff_t stride;
  const std::byte* follow = nullptr;  // null: in cache, nothing is fetched
};

// How far ahead, in rows. Fetches in one burst would fill the line buffers, which loads need as well.
inline constexpr int kFetchedRows = 24;

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

// Steps [begin, end). `fetched`: from where lines of as many rows are fetched; null: nothing is.
template <int kRows, int kVectors, class Stored>
HWY_INLINE void multiply_steps(const LeftFactor& a, const RightFactor<Stored>& b, int row, int col, int begin,
                               int end, const std::byte* fetched, VF (&sum)[kRows][kVectors]) {
  constexpr std::ptrdiff_t kLine = 64;
  const float* left = a.data + row * a.row_stride + begin * a.step;
  const typename Stored::Raw* right = b.data + col + begin * b.stride;
  const std::ptrdiff_t bytes = b.stride * std::ptrdiff_t{sizeof(typename Stored::Raw)};
  for (int t = begin; t < end; ++t, left += a.step, right += b.stride) {
    VF x[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) x[v] = Stored::load(right + v * kLanes);
    if (fetched != nullptr) {
      for (std::ptrdiff_t at = 0; at < bytes; at += kLine) __builtin_prefetch(fetched + at, 0, 3);
      fetched += bytes;
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const VF w = hn::Set(F32(), left[r * a.row_stride]);
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
  if (b.follow == nullptr) {
    multiply_steps(a, b, row, col, 0, depth, nullptr, sum);
  } else {
    const int cut = std::max(0, depth - kFetchedRows);
    multiply_steps(a, b, row, col, 0, cut,
                   reinterpret_cast<const std::byte*>(b.data + kFetchedRows * b.stride), sum);
    multiply_steps(a, b, row, col, cut, depth, b.follow, sum);
  }
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

/// `rows` rows of `cols` stored values as fp32 rows of round_up(cols), padded with zeros.
template <class Stored>
void widen(const typename Stored::Raw* in, int rows, int cols, float* out) {
  const int whole = cols / kLanes * kLanes;
  for (int r = 0; r < rows; ++r, in += cols, out += round_up(cols)) {
    for (int c = 0; c < whole; c += kLanes) hn::StoreU(Stored::load(in + c), F32(), out + c);
    for (int c = whole; c < cols; ++c) out[c] = Stored::load_one(in + c);
    std::fill(out + cols, out + round_up(cols), 0.0F);
  }
}

}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
