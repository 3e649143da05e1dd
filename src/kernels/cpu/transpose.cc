// transpose of packed panels, in blocks of 16 x 16 that are contiguous on both sides.
#include <algorithm>
#include <type_traits>

#include "kernels/cpu/register.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/transpose.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include "kernels/cpu/fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::kernels::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR

template <class Raw>
HWY_INLINE void transpose_block(const Raw* in, Raw* out) {
  for (int i = 0; i < kPanel; ++i)
    for (int j = 0; j < kPanel; ++j) out[j * kPanel + i] = in[i * kPanel + j];
}

#else

// out[j * 16 + i] = in[i * 16 + j] for an N x N corner, N = lanes of 128 bits: log2(N) rounds, each of which
// interleaves vector i with vector i + N / 2.
template <class Raw>
HWY_INLINE void transpose_corner(const Raw* in, Raw* out) {
  const hn::FixedTag<Raw, 16 / sizeof(Raw)> d;
  constexpr int kSize = 16 / sizeof(Raw);
  using Vector = hn::Vec<decltype(d)>;
  Vector rows[kSize];
#pragma GCC unroll 16
  for (int i = 0; i < kSize; ++i) rows[i] = hn::LoadU(d, in + i * kPanel);
#pragma GCC unroll 4
  for (int round = 1; round < kSize; round *= 2) {
    Vector next[kSize];
#pragma GCC unroll 16
    for (int i = 0; i < kSize / 2; ++i) {
      next[2 * i] = hn::InterleaveLower(d, rows[i], rows[i + kSize / 2]);
      next[2 * i + 1] = hn::InterleaveUpper(d, rows[i], rows[i + kSize / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kSize; ++i) rows[i] = next[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kSize; ++i) hn::StoreU(rows[i], d, out + i * kPanel);
}

template <class Raw>
HWY_INLINE void transpose_block(const Raw* in, Raw* out) {
  constexpr int kSize = 16 / sizeof(Raw);
  for (int i = 0; i < kPanel; i += kSize)
    for (int j = 0; j < kPanel; j += kSize) transpose_corner(in + i * kPanel + j, out + j * kPanel + i);
}

#endif

// Columns [16 * panel, + width) of w become rows of `out`'s panel. `edge` is a block whose missing columns
// stay zero.
template <class From, class To>
void transpose_panel(const TransposeArgs& args, std::int64_t panel, std::int64_t width) {
  using Raw = typename From::Raw;
  constexpr std::int64_t kBlock = std::int64_t{kPanel} * kPanel;
  const std::int64_t rows = args.w->rows();
  const std::int64_t stride = args.w->cols() * kPanel;
  const auto* in = static_cast<const Raw*>(args.w->data()) + panel * kBlock;
  auto* out = static_cast<typename To::Raw*>(args.out->data()) + panel * rows * kPanel;
  alignas(64) Raw edge[kBlock] = {};
  alignas(64) Raw turned[kBlock];
  for (std::int64_t r = 0; r < rows; r += kPanel, in += stride, out += kBlock) {
    const Raw* block = in;
    if (width < kPanel) {
      std::copy_n(in, width * kPanel, edge);
      block = edge;
    }
    const std::int64_t count = std::min<std::int64_t>(kPanel, rows - r) * kPanel;
    if constexpr (std::is_same_v<From, To>) {
      if (count == kBlock) {
        transpose_block(block, out);
        continue;
      }
    }
    transpose_block(block, turned);
    if constexpr (std::is_same_v<From, To>)
      std::copy_n(turned, count, out);
    else
      for (std::int64_t i = 0; i < count; i += kLanes) hn::Store(From::load(turned + i), F32(), out + i);
  }
}

void transpose(const TransposeArgs& args) {
  with_storage(args.w->dtype(), [&](auto from) {
    using From = decltype(from);
    for (std::int64_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
      const std::int64_t width = std::min<std::int64_t>(kPanel, args.w->cols() - panel * kPanel);
      if (args.out->dtype() == From::kDType)
        transpose_panel<From, From>(args, panel, width);
      else
        transpose_panel<From, StoredF32>(args, panel, width);
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
