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

/// What lies in memory rather than in cache is fetched ahead as it is read, and behind its end `follow`,
/// which is read next (null: nothing).
struct Fetch {
  bool wanted = false;
  const std::byte* follow = nullptr;
};

/// The right factor: row t at data + t * stride, in storage type Stored.
template <class Stored>
struct RightFactor {
  const typename Stored::Raw* data;
  std::ptrdiff_t stride;
  Fetch fetch = {};
};

// How far ahead, in rows. Fetches in one burst would fill the line buffers, which loads need as well.
inline constexpr int kFetchedRows = 24;

HWY_INLINE void fetch_lines(const std::byte* from, std::ptrdiff_t bytes) {
  constexpr std::ptrdiff_t kLine = 64;
  for (std::ptrdiff_t at = 0; at < bytes; at += kLine) __builtin_prefetch(from + at, 0, 3);
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

// A stretch of the depth, and from where lines of as many rows are fetched meanwhile (null: nothing is).
struct Steps {
  int begin;
  int end;
  const std::byte* fetched;
};

// `left` and `right` are of the tile's first row and column.
template <int kRows, int kVectors, class Stored>
HWY_INLINE void multiply_steps(LeftFactor left, RightFactor<Stored> right, Steps steps,
                               VF (&sum)[kRows][kVectors]) {
  const std::ptrdiff_t bytes = right.stride * std::ptrdiff_t{sizeof(typename Stored::Raw)};
  const float* w = left.data + steps.begin * left.step;
  const typename Stored::Raw* data = right.data + steps.begin * right.stride;
  const std::byte* fetched = steps.fetched;
  for (int t = steps.begin; t < steps.end; ++t, w += left.step, data += right.stride) {
    VF x[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) x[v] = Stored::load(data + v * kLanes);
    if (fetched != nullptr) {
      fetch_lines(fetched, bytes);
      fetched += bytes;
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const VF value = hn::Set(F32(), w[r * left.row_stride]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = fma(value, x[v], sum[r][v]);
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
  const RightFactor<Stored> right = {b.data + col, b.stride};
  if (b.fetch.wanted && row == 0 && col == 0) {  // the first tile reads all rows, and whole lines
    const int cut = std::max(0, depth - kFetchedRows);
    const auto* ahead =
        cut == 0 ? nullptr : reinterpret_cast<const std::byte*>(b.data + kFetchedRows * b.stride);
    multiply_steps(left, right, {0, cut, ahead}, sum);
    multiply_steps(left, right, {cut, depth, b.fetch.follow}, sum);
  } else {
    multiply_steps(left, right, {0, depth, nullptr}, sum);
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
void widen(const typename Stored::Raw* in, int rows, int cols, Fetch fetch, float* out) {
  const int whole = cols / kLanes * kLanes;
  const std::ptrdiff_t bytes = cols * std::ptrdiff_t{sizeof(typename Stored::Raw)};
  for (int r = 0; r < rows; ++r, in += cols, out += round_up(cols)) {
    const int behind = r + kFetchedRows - rows;  // of the row to fetch, how far behind the end
    if (fetch.wanted && behind < 0)
      fetch_lines(reinterpret_cast<const std::byte*>(in + kFetchedRows * cols), bytes);
    if (fetch.wanted && behind >= 0 && fetch.follow != nullptr)
      fetch_lines(fetch.follow + behind * bytes, bytes);
    for (int c = 0; c < whole; c += kLanes) hn::StoreU(Stored::load(in + c), F32(), out + c);
    for (int c = whole; c < cols; ++c) out[c] = Stored::load_one(in + c);
    std::fill(out + cols, out + round_up(cols), 0.0F);
  }
}

}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
