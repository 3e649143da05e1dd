// The register tile of matmul: some rows of x times some panels of w, all sums in registers.
// Included once per target by Highway's foreach_target (no include guard of the usual kind).
#if defined(RONDO_KERNELS_CPU_MATMUL_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDO_KERNELS_CPU_MATMUL_TILE_INL_H_
#undef RONDO_KERNELS_CPU_MATMUL_TILE_INL_H_
#else
#define RONDO_KERNELS_CPU_MATMUL_TILE_INL_H_
#endif

#include <array>
#include <utility>

#include "kernels/cpu/fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::kernels::HWY_NAMESPACE {

// The tallest tile, and how many panels fit beside `rows` rows. A tile needs rows * panels * kPanelVectors
// sums, that many panel vectors once, and one broadcast value in the 32, 16 or 16 vector registers; below 8
// sums the latency of the FMA units shows.
#if HWY_TARGET == HWY_AVX3
inline constexpr int kTileRows = 8;
constexpr int tile_panels(int rows) {
  return rows <= 6 ? 4 : 3;
}
#elif HWY_TARGET == HWY_AVX2
inline constexpr int kTileRows = 6;
constexpr int tile_panels(int rows) {
  return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
}
#else
inline constexpr int kTileRows = 2;
constexpr int tile_panels(int) {
  return 1;
}
#endif
inline constexpr int kMaxTilePanels = 4;
inline constexpr int kCacheLine = 64;

/// Operands of a tile, over `count` consecutive k. Sums are [rows][panels * 16], 64-byte aligned.
template <class Stored>
struct TileOperands {
  const typename Stored::Raw* w;  // first panel, at the first k
  std::int64_t panel_stride;      // elements from a panel to the next
  const float* x;                 // first row, at the first k
  std::int64_t ldx;
  std::int64_t count;
  float* sums;
  const std::byte* ahead = nullptr;  // what to fetch meanwhile, one cache line per k
};

/// Continues the chains in `sums`.
template <class Stored, bool kFetchAhead, int kRows, int kPanels>
void accumulate_tile(const TileOperands<Stored>& tile) {
  constexpr int kVectors = kPanels * kPanelVectors;
  const F32 d;
  const auto* w = tile.w;
  const std::int64_t panel_stride = tile.panel_stride;
  const float* x = tile.x;
  const std::int64_t ldx = tile.ldx;
  const std::byte* ahead = tile.ahead;
  VF sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Load(d, tile.sums + (r * kVectors + v) * kLanes);
  for (std::int64_t k = 0; k < tile.count; ++k) {
    VF weights[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
      weights[v] = Stored::load(w + (v / kPanelVectors) * panel_stride + (v % kPanelVectors) * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const VF value = hn::Set(d, x[r * ldx + k]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(value, weights[v], sums[r][v]);
    }
    w += kPanel;
    if constexpr (kFetchAhead) {
      __builtin_prefetch(ahead, 0, 2);  // into L2
      ahead += kCacheLine;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) hn::Store(sums[r][v], d, tile.sums + (r * kVectors + v) * kLanes);
}

template <class Stored>
using TileFunction = void (*)(const TileOperands<Stored>&);

template <class Stored, bool kFetchAhead, int kRows, int kPanels>
constexpr TileFunction<Stored> tile_entry() {
  if constexpr (kPanels <= tile_panels(kRows))
    return accumulate_tile<Stored, kFetchAhead, kRows, kPanels>;
  else
    return nullptr;
}

template <class Stored, bool kFetchAhead, std::size_t... kIndex>
constexpr auto tile_table(std::index_sequence<kIndex...>) {
  return std::array<TileFunction<Stored>, sizeof...(kIndex)>{
      tile_entry<Stored, kFetchAhead, kIndex / kMaxTilePanels + 1, kIndex % kMaxTilePanels + 1>()...};
}

/// The tile for `rows` in [1, kTileRows] and `panels` in [1, tile_panels(rows)].
template <class Stored, bool kFetchAhead = false>
TileFunction<Stored> find_tile(std::int64_t rows, std::int64_t panels) {
  static constexpr auto kTable =
      tile_table<Stored, kFetchAhead>(std::make_index_sequence<kTileRows * kMaxTilePanels>());
  return kTable[static_cast<std::size_t>((rows - 1) * kMaxTilePanels + panels - 1)];
}

}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
