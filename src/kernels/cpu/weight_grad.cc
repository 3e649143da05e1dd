// weight_grad: register tiles over (r, c), m innermost. For a block of m, dy is packed tile by tile (it stays
// in L2) and x strip by strip (one strip stays in L1); dw itself carries the chains from one block of m to
// the next.
#include <algorithm>
#include <array>
#include <utility>

#include "kernels/cpu/register.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/weight_grad.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include "kernels/cpu/fixed_point-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::kernels::HWY_NAMESPACE {
namespace {

// Sums of a tile, kGradRows * kGradVectors, leave registers for kGradVectors of x and one broadcast of dy.
#if HWY_TARGET == HWY_AVX3
constexpr int kGradRows = 8;
constexpr int kGradVectors = 3;
#elif HWY_TARGET == HWY_AVX2
constexpr int kGradRows = 6;
constexpr int kGradVectors = 2;
#else
constexpr int kGradRows = 2;
constexpr int kGradVectors = 16;
#endif
constexpr int kStrip = kGradVectors * kLanes;  // columns of a tile
constexpr int kBlockM = 192;
constexpr std::int64_t kBlockRows = std::int64_t{48} * kGradRows;  // of dw
constexpr std::int64_t kBlockColumns = 576;

/// One tile over `count` rows of the strip: the sums at dw continue, or start at 0.
struct GradTile {
  const float* dy;     // [count][kGradRows]
  const float* strip;  // [count][kStrip]
  std::int64_t count;
  float* dw;
  std::int64_t lddw;
  bool continue_chain;
  std::int64_t* sum = nullptr;  // if not null: where the finished values are added; dw then stays as it is
  std::int64_t ldsum = 0;
};

// Rows [begin, end) of the strip.
template <int kRows>
HWY_INLINE void accumulate_steps(const GradTile& tile, std::int64_t begin, std::int64_t end,
                                 VF (&sums)[kRows][kGradVectors]) {
  const F32 d;
  const float* dy = tile.dy + begin * kGradRows;
  const float* x = tile.strip + begin * kStrip;
  for (std::int64_t m = begin; m < end; ++m) {
    VF values[kGradVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kGradVectors; ++v) values[v] = hn::Load(d, x + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const VF gradient = hn::Set(d, dy[r]);
#pragma GCC unroll 16
      for (int v = 0; v < kGradVectors; ++v) sums[r][v] = fma(gradient, values[v], sums[r][v]);
    }
    dy += kGradRows;
    x += kStrip;
  }
}

// The sums of the tile below this one arrive while this one is multiplied: a row of them for every part.
template <int kRows>
HWY_INLINE void accumulate_and_fetch(const GradTile& tile, VF (&sums)[kRows][kGradVectors]) {
  constexpr std::int64_t kLine = 64 / sizeof(std::int64_t);
  const std::int64_t* next = tile.sum + kRows * tile.ldsum;
  for (int r = 0; r < kRows; ++r) {
    for (std::int64_t i = 0; i < kStrip; i += kLine) __builtin_prefetch(next + r * tile.ldsum + i, 1, 3);
    accumulate_steps<kRows>(tile, tile.count * r / kRows, tile.count * (r + 1) / kRows, sums);
  }
}

/// False if the tile has a sum, and it does not fit.
template <int kRows>
bool accumulate_grad(const GradTile& tile) {
  const F32 d;
  VF sums[kRows][kGradVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kGradVectors; ++v)
      sums[r][v] = tile.continue_chain ? hn::LoadU(d, tile.dw + r * tile.lddw + v * kLanes) : hn::Zero(d);
  if (tile.sum != nullptr) {
    accumulate_and_fetch<kRows>(tile, sums);
    FixedPointAdder adder;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
      for (int v = 0; v < kGradVectors; ++v) adder.add(sums[r][v], tile.sum + r * tile.ldsum + v * kLanes);
    return adder.ok();
  }
  accumulate_steps<kRows>(tile, 0, tile.count, sums);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kGradVectors; ++v) hn::StoreU(sums[r][v], d, tile.dw + r * tile.lddw + v * kLanes);
  return true;
}

using GradFunction = bool (*)(const GradTile&);

template <std::size_t... kIndex>
constexpr std::array<GradFunction, sizeof...(kIndex)> grad_table(std::index_sequence<kIndex...>) {
  return {accumulate_grad<kIndex + 1>...};
}
constexpr auto kGradTable = grad_table(std::make_index_sequence<kGradRows>());

// Copies the first `width` <= kWidth columns of `count` rows to [count][kWidth]; columns beyond are zero.
template <int kWidth>
void pack_columns(const float* from, std::int64_t ld, std::int64_t count, std::int64_t width, float* to) {
  if (width == kWidth) {  // the usual case, without calls to memcpy
    for (std::int64_t m = 0; m < count; ++m)
      for (int i = 0; i < kWidth; ++i) to[m * kWidth + i] = from[m * ld + i];
    return;
  }
  for (std::int64_t m = 0; m < count; ++m) {
    std::copy_n(from + m * ld, width, to + m * kWidth);
    std::fill_n(to + m * kWidth + width, kWidth - width, 0.0f);
  }
}

// A tile whose strip is narrower than kStrip: computed beside dw, of which only `width` columns exist.
bool accumulate_narrow(GradTile tile, std::int64_t rows, std::int64_t width) {
  alignas(64) float beside[kGradRows * kStrip] = {};
  float* dw = std::exchange(tile.dw, beside);
  const std::int64_t lddw = std::exchange(tile.lddw, kStrip);
  std::int64_t* sum = std::exchange(tile.sum, nullptr);
  if (tile.continue_chain)
    for (std::int64_t r = 0; r < rows; ++r) std::copy_n(dw + r * lddw, width, beside + r * kStrip);
  kGradTable[static_cast<std::size_t>(rows - 1)](tile);
  bool ok = true;
  for (std::int64_t r = 0; r < rows; ++r) {
    if (sum != nullptr)
      ok = fixed_point_add(sum + r * tile.ldsum, beside + r * kStrip, width) && ok;
    else
      std::copy_n(beside + r * kStrip, width, dw + r * lddw);
  }
  return ok;
}

/// Where the values of dw rows [r_begin, …) are added, if anywhere.
struct FixedSum {
  std::int64_t* sum;  // of r_begin's row; null: nowhere
  std::int64_t ld;
};

// One block: at most kBlockM of m and kBlockRows x kBlockColumns of dw. False if a sum does not fit.
bool weight_grad_block(const WeightGradArgs& block, FixedSum into) {
  alignas(64) float tiles[kBlockRows * kBlockM];
  alignas(64) float strip[kBlockM * kStrip];
  const std::int64_t count = block.rows;
  const std::int64_t rows = block.r_end - block.r_begin;
  bool ok = true;
  for (std::int64_t t = 0; t < rows; t += kGradRows)
    pack_columns<kGradRows>(block.dy + block.r_begin + t, block.lddy, count,
                            std::min<std::int64_t>(kGradRows, rows - t), tiles + t * count);
  for (std::int64_t c = 0; c < block.cols; c += kStrip) {
    const std::int64_t width = std::min<std::int64_t>(kStrip, block.cols - c);
    pack_columns<kStrip>(block.x + c, block.ldx, count, width, strip);
    for (std::int64_t t = 0; t < rows; t += kGradRows) {
      const std::int64_t height = std::min<std::int64_t>(kGradRows, rows - t);
      const GradTile tile = {.dy = tiles + t * count,
                             .strip = strip,
                             .count = count,
                             .dw = block.dw + (block.r_begin + t) * block.lddw + c,
                             .lddw = block.lddw,
                             .continue_chain = block.continue_chain,
                             .sum = into.sum == nullptr ? nullptr : into.sum + t * into.ld + c,
                             .ldsum = into.ld};
      const bool fits = width == kStrip ? kGradTable[static_cast<std::size_t>(height - 1)](tile)
                                        : accumulate_narrow(tile, height, width);
      ok = ok && fits;
    }
  }
  return ok;
}

// All m for the rows and columns of `args`, in order; the last block goes to `into`.
bool accumulate_all_m(WeightGradArgs args, FixedSum into) {
  const std::int64_t rows = args.rows;
  bool ok = true;
  // Even without rows there is one block: it writes the zeros.
  for (std::int64_t m = 0; m == 0 || m < rows; m += kBlockM) {
    const bool last = m + kBlockM >= rows;
    args.rows = std::min<std::int64_t>(kBlockM, rows - m);
    ok = weight_grad_block(args, {last ? into.sum : nullptr, into.ld});
    args.dy += kBlockM * args.lddy;
    args.x += kBlockM * args.ldx;
    args.continue_chain = true;
  }
  return ok;
}

// Calls body(c, columns, r_begin, r_end) for every block of dw. Blocks are of nearly equal height: a strip is
// packed for each of them.
template <class Body>
void for_each_block(std::int64_t r_begin, std::int64_t r_end, std::int64_t cols, const Body& body) {
  const std::int64_t rows = r_end - r_begin;
  const std::int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  const std::int64_t tiles = (rows + kGradRows - 1) / kGradRows;
  for (std::int64_t c = 0; c < cols; c += kBlockColumns)
    for (std::int64_t i = 0; i < blocks; ++i)
      body(c, std::min(kBlockColumns, cols - c), r_begin + tiles * i / blocks * kGradRows,
           std::min(r_begin + tiles * (i + 1) / blocks * kGradRows, r_end));
}

void weight_grad(const WeightGradArgs& args) {
  for_each_block(args.r_begin, args.r_end, args.cols,
                 [&](std::int64_t c, std::int64_t columns, std::int64_t begin, std::int64_t end) {
                   WeightGradArgs block = args;
                   block.x = args.x + c;
                   block.dw = args.dw + c;
                   block.cols = columns;
                   block.r_begin = begin;
                   block.r_end = end;
                   accumulate_all_m(block, {nullptr, 0});
                 });
}

// dw holds the chains of one block between blocks of m; what is finished is added from the registers.
bool weight_grad_sum(const WeightGradSumArgs& args) {
  alignas(64) float dw[kBlockRows * kBlockColumns];
  bool ok = true;
  for_each_block(args.r_begin, args.r_end, args.cols,
                 [&](std::int64_t c, std::int64_t columns, std::int64_t begin, std::int64_t end) {
                   const bool fits = accumulate_all_m({.dy = args.dy + begin,
                                                       .lddy = args.lddy,
                                                       .x = args.x + c,
                                                       .ldx = args.ldx,
                                                       .dw = dw,
                                                       .lddw = kBlockColumns,
                                                       .rows = args.rows,
                                                       .cols = columns,
                                                       .r_begin = 0,
                                                       .r_end = end - begin,
                                                       .continue_chain = false},
                                                      {args.sum + begin * args.ldsum + c, args.ldsum});
                   ok = ok && fits;
                 });
  return ok;
}

}  // namespace

void fill_weight_grad_target(OpTable& table) {
  table.weight_grad = weight_grad;
  table.weight_grad_sum = weight_grad_sum;
}

}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::kernels {

HWY_EXPORT(fill_weight_grad_target);

void cpu::fill_weight_grad(OpTable& table) {
  HWY_DYNAMIC_DISPATCH(fill_weight_grad_target)(table);
}

}  // namespace rondo::kernels
#endif  // HWY_ONCE
