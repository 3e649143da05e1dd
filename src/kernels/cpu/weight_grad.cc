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
constexpr int kBlockTiles = 64;  // tiles of dy that are packed at a time

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

// Copies columns [0, width) of `count` rows of x to the strip; the columns beyond are zero.
void pack_strip(const float* x, std::int64_t ldx, std::int64_t count, std::int64_t width, float* strip) {
  for (std::int64_t m = 0; m < count; ++m) {
    std::copy_n(x + m * ldx, width, strip + m * kStrip);
    std::fill_n(strip + m * kStrip + width, kStrip - width, 0.0f);
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

// Rows [r, r + rows) of dy over `count` m, as tiles [count][kGradRows].
void pack_tiles(const float* dy, std::int64_t lddy, std::int64_t count, std::int64_t rows, float* tiles) {
  for (std::int64_t m = 0; m < count; ++m)
    for (std::int64_t r = 0; r < rows; r += kGradRows)
      std::copy_n(dy + m * lddy + r, std::min<std::int64_t>(kGradRows, rows - r),
                  tiles + (r / kGradRows * count + m) * kGradRows);
}

// One block: `count` m from args.dy and args.x on, rows [r, r + rows) of dw, rows <= kBlockTiles * kGradRows.
void weight_grad_block(const WeightGradArgs& args, std::int64_t count, std::int64_t r, std::int64_t rows) {
  alignas(64) float tiles[kBlockTiles * kBlockM * kGradRows];
  alignas(64) float strip[kBlockM * kStrip];
  pack_tiles(args.dy + r, args.lddy, count, rows, tiles);
  for (std::int64_t c = 0; c < args.cols; c += kStrip) {
    const std::int64_t width = std::min<std::int64_t>(kStrip, args.cols - c);
    pack_strip(args.x + c, args.ldx, count, width, strip);
    for (std::int64_t t = 0; t < rows; t += kGradRows) {
      const std::int64_t height = std::min<std::int64_t>(kGradRows, rows - t);
      const GradTile tile = {.dy = tiles + t * count,
                             .strip = strip,
                             .count = count,
                             .dw = args.dw + (r + t) * args.lddw + c,
                             .lddw = args.lddw,
                             .continue_chain = args.continue_chain};
      if (width == kStrip)
        kGradTable[static_cast<std::size_t>(height - 1)](tile);
      else
        accumulate_narrow(tile, height, width);
    }
  }
}

void weight_grad(const WeightGradArgs& args) {
  constexpr std::int64_t kBlockR = std::int64_t{kBlockTiles} * kGradRows;
  WeightGradArgs block = args;
  // Even without rows there is one block: it writes the zeros.
  for (std::int64_t m = 0; m == 0 || m < args.rows; m += kBlockM) {
    for (std::int64_t r = args.r_begin; r < args.r_end; r += kBlockR)
      weight_grad_block(block, std::min<std::int64_t>(kBlockM, args.rows - m), r,
                        std::min(kBlockR, args.r_end - r));
    block.dy += kBlockM * args.lddy;
    block.x += kBlockM * args.ldx;
    block.continue_chain = true;
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
