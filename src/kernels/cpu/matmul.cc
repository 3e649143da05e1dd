// matmul. Few rows: tiles read the stored weights, each once. Many rows: a group of panels is widened to fp32
// into a block that stays in cache, and tiles of all rows of a row block pass over it. Sums go through memory
// between stretches of k, so the cuts change no bit.
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
constexpr int kBlockK = 128;                    // its length
constexpr int kBlockRows = 96;                  // rows that pass over it: x of a row block stays in L2

/// One call of matmul on weights of one storage type.
template <class Stored>
class Matmul final {
 public:
  using Raw = typename Stored::Raw;

  Matmul(const MatmulArgs& args, std::span<const KSegment> segments)
      : args_(args), segments_(segments), cols_(args.w->cols()) {
    for (const KSegment& segment : segments) chains_ = std::max(chains_, segment.chain + 1);
  }

  void run() const {
    const std::int64_t rows = args_.row_end - args_.row_begin;
    if (rows <= 0) return;
    if (rows <= kTileRows)
      run_direct(rows);
    else
      for (std::int64_t m = args_.row_begin; m < args_.row_end; m += kBlockRows)
        run_blocked(m, std::min<std::int64_t>(kBlockRows, args_.row_end - m));
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
      const TileFunction<Stored> tile = find_tile<Stored>(rows, panels);
      std::fill_n(sums, chains_ * size, 0.0f);
      for (const KSegment& segment : segments_)
        tile({.w = panel_data(panel) + std::int64_t{segment.begin} * kPanel,
              .panel_stride = cols_ * kPanel,
              .x = args_.x + args_.row_begin * args_.ldx + segment.begin,
              .ldx = args_.ldx,
              .count = segment.end - segment.begin,
              .sums = sums + segment.chain * size});
      finish(sums, args_.row_begin, rows, panel, panels);
    }
  }

  // Bytes that are wanted in cache soon.
  struct Ahead {
    const std::byte* next;
    const std::byte* end;
  };

  // Rows [first, first + rows), rows <= kBlockRows.
  void run_blocked(std::int64_t first, std::int64_t rows) const {
    alignas(64) float sums[kMaxChains * kBlockRows * kGroup * kPanel];
    alignas(64) float block[kGroup * kBlockK * kPanel];
    for (std::int64_t panel = args_.panel_begin; panel < args_.panel_end; panel += kGroup) {
      const std::int64_t panels = std::min<std::int64_t>(kGroup, args_.panel_end - panel);
      const std::int64_t size = rows * panels * kPanel;
      Ahead ahead = next_group(panel + panels);
      std::fill_n(sums, chains_ * size, 0.0f);
      for (const KSegment& segment : segments_) {
        for (std::int64_t k = segment.begin; k < segment.end; k += kBlockK) {
          const std::int64_t count = std::min<std::int64_t>(kBlockK, segment.end - k);
          widen(panel, panels, k, count, block);
          multiply_block({.w = block,
                          .panel_stride = kBlockK * kPanel,
                          .x = args_.x + first * args_.ldx + k,
                          .ldx = args_.ldx,
                          .count = count,
                          .sums = sums + segment.chain * size},
                         rows, panels, ahead);
        }
      }
      finish(sums, first, rows, panel, panels);
    }
  }

  // The stored weights of the group of panels from `panel` on.
  Ahead next_group(std::int64_t panel) const {
    const std::int64_t end = std::min(panel + kGroup, args_.panel_end);
    return {reinterpret_cast<const std::byte*>(panel_data(panel)),
            reinterpret_cast<const std::byte*>(panel_data(end))};
  }

  void widen(std::int64_t panel, std::int64_t panels, std::int64_t k, std::int64_t count,
             float* block) const {
    for (std::int64_t p = 0; p < panels; ++p) {
      const Raw* from = panel_data(panel + p) + k * kPanel;
      float* to = block + p * kBlockK * kPanel;
      for (std::int64_t i = 0; i < count * kPanel; i += kLanes)
        hn::Store(Stored::load(from + i), F32(), to + i);
    }
  }

  // `all` describes a tile of `rows` rows; they are done in tiles of nearly equal height that fit.
  static void multiply_block(const TileOperands<StoredF32>& all, std::int64_t rows, std::int64_t panels,
                             Ahead& ahead) {
    const std::int64_t tiles = (rows + kTileRows - 1) / kTileRows;
    for (std::int64_t i = 0; i < tiles; ++i) {
      const std::int64_t begin = rows * i / tiles;
      const std::int64_t height = rows * (i + 1) / tiles - begin;
      TileOperands<StoredF32> tile = all;
      tile.x += begin * all.ldx;
      tile.sums += begin * panels * kPanel;
      if (ahead.next < ahead.end) {
        tile.ahead = ahead.next;
        ahead.next += all.count * kCacheLine;
        find_tile<StoredF32, true>(height, panels)(tile);
      } else {
        find_tile<StoredF32>(height, panels)(tile);
      }
    }
  }

  // Combines the chains and writes the sums [chains][rows][panels * 16] to y.
  void finish(float* sums, std::int64_t first, std::int64_t rows, std::int64_t panel,
              std::int64_t panels) const {
    const std::int64_t width = panels * kPanel;
    const std::int64_t size = rows * width;
    for (int chains = chains_; chains > 1; chains /= 2)
      for (int i = 0; i < chains / 2; ++i)
        add_pair(sums + 2 * i * size, sums + (2 * i + 1) * size, sums + i * size, size);
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
