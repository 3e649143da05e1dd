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

// How far ahead a tile fetches the weights that it reads from memory, in steps. The processor's own
// prefetcher stops at every page of 4 KiB; this leads it over.
inline constexpr std::int64_t kNearSteps = 32;

/// What a tile does beside its sums.
enum class TileUse {
  kOnce,   // reads stored weights that lie in memory
  kWiden,  // the same, and leaves them as fp32 for further tiles
  kAgain   // reads weights that are in cache
};

/// Stored weights that are read next, which a tile fetches beside its own work, evenly over its steps.
struct TileAhead {
  const std::byte* w = nullptr;   // first panel; null: nothing is fetched
  std::int64_t panel_stride = 0;  // bytes from a panel to the next
  std::int64_t panels = 0;
  std::int64_t panel_bytes = 0;  // that are fetched of each
};

/// Where the chains of a tile end.
struct TileResults {
  float* y = nullptr;               // [rows][panels * 16], rows `ldy` apart; null: they do not end
  const float* residual = nullptr;  // added, laid out like y; or null
  std::int64_t ldy = 0;
};

/// Operands of a tile, over `count` consecutive k. Sums are [rows][panels * 16], 64-byte aligned.
template <class Stored>
struct TileOperands {
  const typename Stored::Raw* w;  // first panel, at the first k
  std::int64_t panel_stride;      // elements from a panel to the next
  const float* x;                 // first row, at the first k
  std::int64_t ldx;
  std::int64_t count;
  float* sums;
  float* widened = nullptr;  // kWiden: where to, one panel after the other
  std::int64_t widened_stride = 0;
  TileAhead ahead = {};      // not in use kOnce
  TileResults results = {};  // if the chains end here; then nothing goes back to `sums`
};

// What some steps fetch: `ahead` + i * `ahead_step` in the i-th, and, where the weights lie in memory, those
// `near` elements behind the ones that are read.
struct StepFetches {
  const void* ahead;
  std::int64_t ahead_step;
  std::int64_t near;
};

// Steps [begin, end).
template <class Stored, TileUse kUse, int kRows, int kVectors>
HWY_INLINE void accumulate_steps(const TileOperands<Stored>& tile, std::int64_t begin, std::int64_t end,
                                 const StepFetches& fetches, VF (&sums)[kRows][kVectors]) {
  const F32 d;
  const std::int64_t panel_stride = tile.panel_stride;
  const auto* w = tile.w + begin * kPanel;
  const float* x = tile.x;
  const std::int64_t ldx = tile.ldx;
  float* widened = tile.widened + begin * kPanel;
  const std::int64_t widened_stride = tile.widened_stride;
  const std::int64_t near = fetches.near;
  const auto* ahead = static_cast<const std::byte*>(fetches.ahead);
  for (std::int64_t k = begin; k < end; ++k) {
    VF weights[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = Stored::load(w + (v / kPanelVectors) * panel_stride + (v % kPanelVectors) * kLanes);
      if constexpr (kUse == TileUse::kWiden)
        hn::Store(weights[v], d,
                  widened + (v / kPanelVectors) * widened_stride + (v % kPanelVectors) * kLanes);
    }
    if constexpr (kUse == TileUse::kOnce || kUse == TileUse::kWiden) {
#pragma GCC unroll 16
      for (int p = 0; p < kVectors / kPanelVectors; ++p)
        __builtin_prefetch(w + p * panel_stride + near, 0, 3);
    }
    if constexpr (kUse == TileUse::kAgain) {
      __builtin_prefetch(ahead, 0, 3);
      ahead += fetches.ahead_step;
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const VF value = hn::Set(d, x[r * ldx + k]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[r][v] = fma(value, weights[v], sums[r][v]);
    }
    w += kPanel;
    if constexpr (kUse == TileUse::kWiden) widened += kPanel;
  }
}

// What part i of `parts` of a tile's steps fetches: its share of the weights that are read next.
template <class Stored>
HWY_INLINE StepFetches part_fetches(const TileOperands<Stored>& tile, std::int64_t i, std::int64_t parts) {
  constexpr std::int64_t kNear = kNearSteps * kPanel;
  const TileAhead& next = tile.ahead;
  if (next.w == nullptr) return {tile.w, 0, kNear};  // is in cache
  const std::int64_t at = next.panels * next.panel_bytes * i / parts;
  return {next.w + at / next.panel_bytes * next.panel_stride + at % next.panel_bytes,
          next.panels * next.panel_bytes / tile.count, kNear};
}

// All steps, in as many parts as it fetches pieces: of each panel that is read next the lines, and of y,
// which is seldom in cache, a row.
template <class Stored, TileUse kUse, int kRows, int kVectors>
HWY_INLINE void accumulate_and_fetch(const TileOperands<Stored>& tile, VF (&sums)[kRows][kVectors]) {
  const TileResults& results = tile.results;
  const std::int64_t parts =
      results.y != nullptr ? std::int64_t{kRows} : std::max<std::int64_t>(1, tile.ahead.panels);
  for (std::int64_t i = 0; i < parts; ++i) {
    if (results.y != nullptr)
      for (int p = 0; p < kVectors / kPanelVectors; ++p)
        __builtin_prefetch(results.y + i * results.ldy + p * kPanel, 1, 3);
    accumulate_steps<Stored, kUse>(tile, tile.count * i / parts, tile.count * (i + 1) / parts,
                                   part_fetches(tile, i, parts), sums);
  }
}

template <int kRows, int kVectors>
HWY_INLINE void write_results(const TileResults& results, VF (&sums)[kRows][kVectors]) {
  const F32 d;
  const auto& [y, residual, ldy] = results;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = r * ldy + v * kLanes;
      const VF sum = sums[r][v];
      hn::StoreU(residual == nullptr ? sum : hn::Add(hn::LoadU(d, residual + at), sum), d, y + at);
    }
  }
}

/// Continues the chains in `sums`, and finishes them if `results` says so (not in use kOnce).
template <class Stored, TileUse kUse, int kRows, int kPanels>
void accumulate_tile(const TileOperands<Stored>& tile) {
  constexpr int kVectors = kPanels * kPanelVectors;
  const F32 d;
  VF sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Load(d, tile.sums + (r * kVectors + v) * kLanes);
  if constexpr (kUse == TileUse::kOnce) {
    // Behind the end of a panel comes that of the next tile.
    const std::int64_t cut = std::max<std::int64_t>(0, tile.count - kNearSteps);
    constexpr std::int64_t kNear = kNearSteps * kPanel;
    const std::int64_t over = kNear + (kPanels - 1) * tile.panel_stride;
    accumulate_steps<Stored, kUse>(tile, 0, cut, {nullptr, 0, kNear}, sums);
    accumulate_steps<Stored, kUse>(tile, cut, tile.count, {nullptr, 0, over}, sums);
  } else {
    accumulate_and_fetch<Stored, kUse>(tile, sums);
    if (tile.results.y != nullptr) return write_results<kRows, kVectors>(tile.results, sums);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) hn::Store(sums[r][v], d, tile.sums + (r * kVectors + v) * kLanes);
}

template <class Stored>
using TileFunction = void (*)(const TileOperands<Stored>&);

template <class Stored, TileUse kUse, int kRows, int kPanels>
constexpr TileFunction<Stored> tile_entry() {
  if constexpr (kPanels <= tile_panels(kRows))
    return accumulate_tile<Stored, kUse, kRows, kPanels>;
  else
    return nullptr;
}

template <class Stored, TileUse kUse, std::size_t... kIndex>
constexpr auto tile_table(std::index_sequence<kIndex...>) {
  return std::array<TileFunction<Stored>, sizeof...(kIndex)>{
      tile_entry<Stored, kUse, kIndex / kMaxTilePanels + 1, kIndex % kMaxTilePanels + 1>()...};
}

/// The tile for `rows` in [1, kTileRows] and `panels` in [1, tile_panels(rows)].
template <class Stored, TileUse kUse>
TileFunction<Stored> find_tile(std::int64_t rows, std::int64_t panels) {
  static constexpr auto kTable =
      tile_table<Stored, kUse>(std::make_index_sequence<kTileRows * kMaxTilePanels>());
  return kTable[static_cast<std::size_t>((rows - 1) * kMaxTilePanels + panels - 1)];
}

}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
