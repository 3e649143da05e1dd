// transpose of packed panels, in blocks of 16 x 16 that are contiguous on both sides.
#include <algorithm>
#include <type_traits>

#include "kernels/cpu/register.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/transpose.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include "kernels/cpu/transpose_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::kernels::HWY_NAMESPACE {
namespace {

// Panels of the result that are written side by side: their blocks are neighbours in w.
constexpr std::int64_t kGroup = 8;
constexpr std::int64_t kBlock = std::int64_t{kPanel} * kPanel;

// The block of w at `in` becomes the first `count` elements at `out`.
template <class From, class To>
HWY_INLINE void write_block(const typename From::Raw* in, std::int64_t count, typename To::Raw* out) {
  if constexpr (std::is_same_v<From, To>) {
    if (count == kBlock) return transpose_block(in, out);
  }
  alignas(64) typename From::Raw turned[kBlock];
  transpose_block(in, turned);
  if constexpr (std::is_same_v<From, To>)
    std::copy_n(turned, count, out);
  else
    for (std::int64_t i = 0; i < count; i += kLanes) hn::Store(From::load(turned + i), F32(), out + i);
}

template <class From, class To>
void transpose_group(const TransposeArgs& args, std::int64_t begin, std::int64_t end) {
  using Raw = typename From::Raw;
  const std::int64_t rows = args.w->rows();
  const std::int64_t cols = args.w->cols();
  alignas(64) Raw edge[kBlock] = {};  // a block whose missing columns stay zero
  for (std::int64_t r = 0; r < rows; r += kPanel) {
    const Raw* in = static_cast<const Raw*>(args.w->data()) + r * cols;
    const std::int64_t count = std::min<std::int64_t>(kPanel, rows - r) * kPanel;
    for (std::int64_t panel = begin; panel < end; ++panel) {
      const Raw* block = in + panel * kBlock;
      const std::int64_t width = cols - panel * kPanel;
      if (width < kPanel) {
        std::copy_n(block, width * kPanel, edge);
        block = edge;
      }
      write_block<From, To>(block, count,
                            static_cast<typename To::Raw*>(args.out->data()) + (panel * rows + r) * kPanel);
    }
  }
}

void transpose(const TransposeArgs& args) {
  with_storage(args.w->dtype(), [&](auto from) {
    using From = decltype(from);
    for (std::int64_t panel = args.panel_begin; panel < args.panel_end; panel += kGroup) {
      const std::int64_t end = std::min(panel + kGroup, args.panel_end);
      if (args.out->dtype() == From::kDType)
        transpose_group<From, From>(args, panel, end);
      else
        transpose_group<From, StoredF32>(args, panel, end);
    }
  });
}

}  // namespace

void fill_transpose_target(OpTable& table) {
  table.transpose = transpose;
}

}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::kernels {

HWY_EXPORT(fill_transpose_target);

void cpu::fill_transpose(OpTable& table) {
  HWY_DYNAMIC_DISPATCH(fill_transpose_target)(table);
}

}  // namespace rondo::kernels
#endif  // HWY_ONCE
