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

#include "kernels/cpu/fma-inl.h"

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
constexpr int kBlockM = 128;
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
};

template <int kRows>
void accumulate_grad(const GradTile& tile) {
  const F32 d;
  VF sums[kRows][kGradVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kGradVectors; ++v)
      sums[r][v] = tile.continue_chain ? hn::LoadU(d, tile.dw + r * tile.lddw + v * kLanes) : hn::Zero(d);
  const float* dy = tile.dy;
  const float* x = tile.strip;
  for (std::int64_t m = 0; m < tile.count; ++m) {
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
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kGradVectors; ++v) hn::StoreU(sums[r][v], d, tile.dw + r * tile.lddw + v * kLanes);
}

using GradFunction = void (*)(const GradTile&);

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
void accumulate_narrow(GradTile tile, std::int64_t rows, std::int64_t width) {
  alignas(64) float beside[kGradRows * kStrip] = {};
  float* dw = std::exchange(tile.dw, beside);
  const std::int64_t lddw = std::exchange(tile.lddw, kStrip);
  for (std::int64_t r = 0; r < rows; ++r) std::copy_n(dw + r * lddw, width, beside + r * kStrip);
  kGradTable[static_cast<std::size_t>(rows - 1)](tile);
  for (std::int64_t r = 0; r < rows; ++r) std::copy_n(beside + r * kStrip, width, dw + r * lddw);
}

// One block: at most kBlockM of m and kBlockRows x kBlockColumns of dw.
void weight_grad_block(const WeightGradArgs& block) {
  alignas(64) float tiles[kBlockRows * kBlockM];
  alignas(64) float strip[kBlockM * kStrip];
  const std::int64_t count = block.rows;
  const std::int64_t rows = block.r_end - block.r_begin;
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
                             .continue_chain = block.continue_chain};
      if (width == kStrip)
        kGradTable[static_cast<std::size_t>(height - 1)](tile);
      else
        accumulate_narrow(tile, height, width);
    }
  }
}

// All m for the rows and columns of `args`, in order.
void accumulate_all_m(WeightGradArgs args) {
  const std::int64_t rows = args.rows;
  // Even without rows there is one block: it writes the zeros.
  for (std::int64_t m = 0; m == 0 || m < rows; m += kBlockM) {
    args.rows = std::min<std::int64_t>(kBlockM, rows - m);
    weight_grad_block(args);
    args.dy += kBlockM * args.lddy;
    args.x += kBlockM * args.ldx;
    args.continue_chain = true;
  }
}

void weight_grad(const WeightGradArgs& args) {
  WeightGradArgs block = args;
  // Blocks of nearly equal height: a strip is packed for each of them.
  const std::int64_t rows = args.r_end - args.r_begin;
  const std::int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  const std::int64_t tiles = (rows + kGradRows - 1) / kGradRows;
  for (std::int64_t c = 0; c < args.cols; c += kBlockColumns) {
    block.x = args.x + c;
    block.dw = args.dw + c;
    block.cols = std::min(kBlockColumns, args.cols - c);
    for (std::int64_t i = 0; i < blocks; ++i) {
      block.r_begin = args.r_begin + tiles * i / blocks * kGradRows;
      block.r_end = std::min(args.r_begin + tiles * (i + 1) / blocks * kGradRows, args.r_end);
      accumulate_all_m(block);
    }
  }
}

}  // namespace

void fill_weight_grad_target(OpTable& table) {
  table.weight_grad = weight_grad;
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
