// pack_rows: blocks of 16 x 16 are rounded row by row, transposed, and are then what a panel holds.
#include <algorithm>
#include <bit>

#include "kernels/cpu/register.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pack.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include "kernels/cpu/transpose_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::kernels::HWY_NAMESPACE {
namespace {

template <class Stored>
bool all_finite(const typename Stored::Raw* values, std::int64_t count) {
  using Bits = typename Stored::Bits;
  Bits wrong = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto exponent = static_cast<Bits>(std::bit_cast<Bits>(values[i]) & Stored::kExponent);
    wrong = static_cast<Bits>(wrong | (exponent == Stored::kExponent ? 1 : 0));
  }
  return wrong == 0;
}

// 16 rows of source, 16 columns of them, to one block of a panel.
template <class Stored>
bool pack_block(const float* source, std::int64_t cols, typename Stored::Raw* out) {
  alignas(64) typename Stored::Raw rows[kPanel * kPanel];
  for (int r = 0; r < kPanel; ++r)
    for (int c = 0; c < kPanel; c += kLanes)
      Stored::store(hn::LoadU(F32(), source + r * cols + c), rows + r * kPanel + c);
  transpose_block(rows, out);
  return all_finite<Stored>(rows, kPanel * kPanel);
}

/// One panel, or some rows of it.
template <class Stored>
class PanelPacker final {
 public:
  PanelPacker(const PackArgs& args, std::int64_t panel)
      : cols_(args.w->cols()),
        panel_(static_cast<typename Stored::Raw*>(args.w->data()) + panel * cols_ * kPanel) {}

  bool pack_all(const float* source) {
    bool finite = true;
    std::int64_t c = 0;
    for (; c + kPanel <= cols_; c += kPanel)
      finite = pack_block<Stored>(source + c, cols_, panel_ + c * kPanel) && finite;
    return pack_elements(0, kPanel, c, source) && finite;
  }

  /// Rows [begin, end) of the panel, columns from `column` on, of a source that starts with row `begin`.
  bool pack_elements(std::int64_t begin, std::int64_t end, std::int64_t column, const float* source) {
    bool finite = true;
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t c = column; c < cols_; ++c) {
        typename Stored::Raw* out = panel_ + c * kPanel + r;
        Stored::store_one(source[(r - begin) * cols_ + c], out);
        finite = all_finite<Stored>(out, 1) && finite;
      }
    }
    return finite;
  }

 private:
  std::int64_t cols_;
  typename Stored::Raw* panel_;
};

bool pack_rows(const PackArgs& args) {
  bool finite = true;
  with_storage(args.w->dtype(), [&](auto stored) {
    const std::int64_t end = args.first + args.count;
    for (std::int64_t row = args.first; row < end;) {
      const std::int64_t panel = row / kPanel;
      const std::int64_t next = std::min(end, (panel + 1) * kPanel);
      PanelPacker<decltype(stored)> packer(args, panel);
      const float* source = args.source + (row - args.first) * args.w->cols();
      const bool fine = next - row == kPanel
                            ? packer.pack_all(source)
                            : packer.pack_elements(row % kPanel, next - panel * kPanel, 0, source);
      finite = finite && fine;
      row = next;
    }
  });
  return finite;
}

}  // namespace

void fill_pack_target(OpTable& table) {
  table.pack_rows = pack_rows;
}

}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::kernels {

HWY_EXPORT(fill_pack_target);

void cpu::fill_pack(OpTable& table) {
  HWY_DYNAMIC_DISPATCH(fill_pack_target)(table);
}

}  // namespace rondo::kernels
#endif  // HWY_ONCE
