// matmul. Few rows: tiles read the stored weights, each once. Many rows: the first tile of a row block leaves
// the weights that it reads as fp32 in a block that stays in cache, and the other tiles pass over it. Sums go
// through memory between stretches of k, so the cuts change no bit.
#include <algorithm>

#include "kernels/cpu/register.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include "kernels/cpu/matmul_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::kernels::HWY_NAMESPACE {
namespace {

constexpr int kGroup = tile_panels(kTileRows);  // panels of a widened block
constexpr int kBlockRows = 192;                 // rows that pass over it: x of a row block stays in L2

// Steps of the widened block: with them it fills three quarters of the first-level cache.
constexpr std::int64_t kStretch = 192;
// A stretch in which a tile can fetch its rows of y without filling the line buffers.
constexpr std::int64_t kLongEnough = 64;

/// One call of matmul on weights of one storage type.
template <class Stored>
class Matmul final {
 public:
  using Raw = typename Stored::Raw;

  Matmul(const MatmulArgs& args, std::span<const KSegment> segments)
      : args_(args), segments_(segments), cols_(args.w->cols()) {
    for (const KSegment& segment : segments) {
      chains_ = std::max(chains_, segment.chain + 1);
      if (segment.begin < segment.end) last_segment_ = &segment;
    }
  }

  void run() const {
    const std::int64_t rows = args_.row_end - args_.row_begin;
    if (rows <= 0) return;
    if (rows <= kTileRows)
      run_direct(rows);
    else
      run_in_blocks(rows);
  }

 private:
  const Raw* panel_data(std::int64_t panel) const {
    return static_cast<const Raw*>(args_.w->data()) + panel * cols_ * kPanel;
  }

  void run_direct(std::int64_t rows) const {
    alignas(64) float sums[kMaxChains * kTileRows * kMaxTilePanels * kPanel];
    const std::int64_t group = tile_panels(static_cast<int>(rows));
    for (std::int64_t panel = args_.panel_begin; panel < args_.panel_end; panel += group) {
      const std::int64_t panels = std::min(group, args_.panel_end - panel);
      const std::int64_t size = rows * panels * kPanel;  // of one chain's sums
      const TileFunction<Stored> tile = find_tile<Stored, TileUse::kOnce>(rows, panels);
      std::fill_n(sums, chains_ * size, 0.0f);
      for (const KSegment& segment : segments_)
        tile({.w = panel_data(panel) + std::int64_t{segment.begin} * kPanel,
              .panel_stride = cols_ * kPanel,
              .x = args_.x + args_.row_begin * args_.ldx + segment.begin,
              .ldx = args_.ldx,
              .count = segment.end - segment.begin,
              .sums = sums + segment.chain * size});
      finish(sums, size, args_.row_begin, rows, panel, panels);
    }
  }

  // Row blocks of nearly equal height.
  void run_in_blocks(std::int64_t rows) const {
    const std::int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
    for (std::int64_t i = 0; i < blocks; ++i) {
      const std::int64_t begin = rows * i / blocks;
      run_blocked(args_.row_begin + begin, rows * (i + 1) / blocks - begin);
    }
  }

  // A stretch of k for a group of panels and the rows of a row block.
  struct Stretch {
    std::int64_t panel, panels;
    std::int64_t k, count;
    std::int64_t first, rows;
    float* sums;   // of its chain
    float* block;  // for the widened weights
  };

  // Rows [first, first + rows), rows <= kBlockRows.
  void run_blocked(std::int64_t first, std::int64_t rows) const {
    alignas(64) float sums[kMaxChains * kBlockRows * kGroup * kPanel];
    alignas(64) float block[kGroup * kStretch * kPanel];
    for (std::int64_t panel = args_.panel_begin; panel < args_.panel_end; panel += kGroup) {
      const std::int64_t panels = std::min<std::int64_t>(kGroup, args_.panel_end - panel);
      const std::int64_t size = rows * panels * kPanel;
      std::fill_n(sums, chains_ * size, 0.0f);
      for (const KSegment& segment : segments_) {
        for (std::int64_t k = segment.begin; k < segment.end; k += kStretch) {
          const bool last = &segment == last_segment_ && k + kStretch >= segment.end;
          multiply_block({.panel = panel,
                          .panels = panels,
                          .k = k,
                          .count = std::min<std::int64_t>(kStretch, segment.end - k),
                          .first = first,
                          .rows = rows,
                          .sums = sums + segment.chain * size,
                          .block = block},
                         last ? sums : nullptr);
        }
      }
      if (last_segment_ == nullptr) finish(sums, size, first, rows, panel, panels);
    }
  }

  // Tiles of nearly equal height. `all_sums` if this is the last stretch: each tile's rows are then finished,
  // by the tile itself if it can, while the next one is multiplied.
  void multiply_block(const Stretch& s, float* all_sums) const {
    const std::int64_t tiles = (s.rows + kTileRows - 1) / kTileRows;
    for (std::int64_t i = 0; i < tiles; ++i) {
      const std::int64_t begin = s.rows * i / tiles;
      const std::int64_t height = s.rows * (i + 1) / tiles - begin;
      const std::int64_t offset = begin * s.panels * kPanel;
      const bool ends = all_sums != nullptr && can_end_in_tile(s);
      if (i == 0)
        first_tile(s, height, ends);
      else
        further_tile(s, {.index = i - 1, .count = tiles - 1}, begin, height, ends);
      if (all_sums != nullptr && !ends)
        finish(all_sums + offset, s.rows * s.panels * kPanel, s.first + begin, height, s.panel, s.panels);
    }
  }

  // One chain, whole panels, and a stretch long enough to fetch y meanwhile.
  bool can_end_in_tile(const Stretch& s) const {
    return chains_ == 1 && (s.panel + s.panels) * kPanel <= args_.w->rows() && s.count > kLongEnough;
  }

  // Of the tile whose first row is `row`.
  TileResults results(const Stretch& s, std::int64_t row) const {
    const std::int64_t at = row * args_.ldy + s.panel * kPanel;
    return {args_.y + at, args_.residual == nullptr ? nullptr : args_.residual + at, args_.ldy};
  }

  void first_tile(const Stretch& s, std::int64_t height, bool ends) const {
    TileOperands<Stored> tile = {.w = panel_data(s.panel) + s.k * kPanel,
                                 .panel_stride = cols_ * kPanel,
                                 .x = args_.x + s.first * args_.ldx + s.k,
                                 .ldx = args_.ldx,
                                 .count = s.count,
                                 .sums = s.sums,
                                 .widened = s.block,
                                 .widened_stride = kStretch * kPanel};
    if (ends) tile.results = results(s, s.first);
    find_tile<Stored, TileUse::kWiden>(height, s.panels)(tile);
  }

  // One of the tiles that share the widened block.
  struct Sharer {
    std::int64_t index, count;
  };

  // Its share of the weights of the next stretch, in whole panels, as if that were as long as this. (Behind
  // the last panel lies what another thread, or another matrix, reads; a fetch from beyond does nothing.)
  TileAhead ahead_of(const Stretch& s, Sharer sharer) const {
    const std::int64_t end = s.k + s.count;
    const std::int64_t k = end < cols_ ? end : 0;
    const std::int64_t panel = end < cols_ ? s.panel : s.panel + s.panels;
    // More tiles than panels: one each, and none for the rest.
    const std::int64_t sharers = std::min(sharer.count, s.panels);
    if (sharer.index >= sharers) return {};
    const std::int64_t first = s.panels * sharer.index / sharers;
    constexpr std::int64_t kStepBytes = kPanel * sizeof(Raw);
    return {.w = reinterpret_cast<const std::byte*>(panel_data(panel + first)) + k * kStepBytes,
            .panel_stride = cols_ * kStepBytes,
            .panels = s.panels * (sharer.index + 1) / sharers - first,
            .panel_bytes = s.count * kStepBytes};
  }

  void further_tile(const Stretch& s, Sharer sharer, std::int64_t begin, std::int64_t height,
                    bool ends) const {
    TileOperands<StoredF32> tile = {.w = s.block,
                                    .panel_stride = kStretch * kPanel,
                                    .x = args_.x + (s.first + begin) * args_.ldx + s.k,
                                    .ldx = args_.ldx,
                                    .count = s.count,
                                    .sums = s.sums + begin * s.panels * kPanel,
                                    .ahead = ahead_of(s, sharer)};
    if (ends) tile.results = results(s, s.first + begin);
    find_tile<StoredF32, TileUse::kAgain>(height, s.panels)(tile);
  }

  // Combines the chains, whose sums [rows][panels * 16] lie `stride` apart, and writes them to y.
  void finish(float* sums, std::int64_t stride, std::int64_t first, std::int64_t rows, std::int64_t panel,
              std::int64_t panels) const {
    const std::int64_t width = panels * kPanel;
    const std::int64_t size = rows * width;
    for (int chains = chains_; chains > 1; chains /= 2)
      for (int i = 0; i < chains / 2; ++i)
        add_pair(sums + 2 * i * stride, sums + (2 * i + 1) * stride, sums + i * stride, size);
    const std::int64_t count = std::min(width, args_.w->rows() - panel * kPanel);
    for (std::int64_t m = 0; m < rows; ++m) {
      const std::int64_t at = (first + m) * args_.ldy + panel * kPanel;
      write_row(sums + m * width, args_.residual == nullptr ? nullptr : args_.residual + at, args_.y + at,
                count);
    }
  }

  static void add_pair(const float* a, const float* b, float* out, std::int64_t size) {
    const F32 d;
    for (std::int64_t i = 0; i < size; i += kLanes)
      hn::Store(hn::Add(hn::Load(d, a + i), hn::Load(d, b + i)), d, out + i);
  }

  static void write_row(const float* sums, const float* residual, float* y, std::int64_t count) {
    const F32 d;
    std::int64_t j = 0;
    for (; j + kLanes <= count; j += kLanes) {
      const VF sum = hn::Load(d, sums + j);
      hn::StoreU(residual == nullptr ? sum : hn::Add(hn::LoadU(d, residual + j), sum), d, y + j);
    }
    for (; j < count; ++j) y[j] = residual == nullptr ? sums[j] : residual[j] + sums[j];
  }

  const MatmulArgs& args_;
  std::span<const KSegment> segments_;
  std::int64_t cols_;
  std::int32_t chains_ = 1;
  const KSegment* last_segment_ = nullptr;  // that is not empty
};

void matmul(const MatmulArgs& args) {
  const KSegment whole = {0, static_cast<std::int32_t>(args.w->cols()), 0};
  const std::span<const KSegment> segments = args.segments.empty() ? std::span(&whole, 1) : args.segments;
  with_storage(args.w->dtype(), [&](auto stored) { Matmul<decltype(stored)>(args, segments).run(); });
}

}  // namespace

void fill_matmul_target(OpTable& table) {
  table.matmul = matmul;
}

}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::kernels {

HWY_EXPORT(fill_matmul_target);

void cpu::fill_matmul(OpTable& table) {
  HWY_DYNAMIC_DISPATCH(fill_matmul_target)(table);
}

}  // namespace rondo::kernels
#endif  // HWY_ONCE
