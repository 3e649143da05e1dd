// matmul, transpose and weight_grad: a first, simple version.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/cpu/fma-inl.h"
#include "kernels/cpu/register.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::kernels::HWY_NAMESPACE {
namespace {

template <class Stored>
void matmul_element_block(const MatmulArgs& args, std::int64_t panel, std::int64_t m,
                          std::span<const KSegment> segments) {
  const F32 d;
  const auto* w = static_cast<const typename Stored::Raw*>(args.w->data()) + panel * args.w->cols() * kPanel;
  const float* x = args.x + m * args.ldx;
  alignas(64) float chains[kMaxChains][kPanel] = {};
  int num_chains = 1;
  for (const KSegment& segment : segments) {
    num_chains = std::max(num_chains, segment.chain + 1);
    for (int v = 0; v < kPanelVectors; ++v) {
      VF sum = hn::Load(d, chains[segment.chain] + v * kLanes);
      for (std::int64_t k = segment.begin; k < segment.end; ++k)
        sum = fma(hn::Set(d, x[k]), Stored::load(w + k * kPanel + v * kLanes), sum);
      hn::Store(sum, d, chains[segment.chain] + v * kLanes);
    }
  }
  for (; num_chains > 1; num_chains /= 2)
    for (int i = 0; i < num_chains / 2; ++i)
      for (int j = 0; j < kPanel; ++j) chains[i][j] = chains[2 * i][j] + chains[2 * i + 1][j];
  const std::int64_t first = panel * kPanel;
  const std::int64_t count = std::min<std::int64_t>(kPanel, args.w->rows() - first);
  float* y = args.y + m * args.ldy + first;
  const float* residual = args.residual ? args.residual + m * args.ldy + first : nullptr;
  for (std::int64_t j = 0; j < count; ++j) y[j] = residual ? residual[j] + chains[0][j] : chains[0][j];
}

void matmul(const MatmulArgs& args) {
  const KSegment whole = {0, static_cast<std::int32_t>(args.w->cols()), 0};
  const std::span<const KSegment> segments = args.segments.empty() ? std::span(&whole, 1) : args.segments;
  with_storage(args.w->dtype(), [&](auto stored) {
    for (std::int64_t panel = args.panel_begin; panel < args.panel_end; ++panel)
      for (std::int64_t m = args.row_begin; m < args.row_end; ++m)
        matmul_element_block<decltype(stored)>(args, panel, m, segments);
  });
}

template <class From, class To>
void transpose_panel(const TransposeArgs& args, std::int64_t panel) {
  const std::int64_t rows = args.w->rows();
  const std::int64_t cols = args.w->cols();
  const auto* in = static_cast<const typename From::Raw*>(args.w->data());
  auto* out = static_cast<typename To::Raw*>(args.out->data()) + panel * rows * kPanel;
  const std::int64_t count = std::min<std::int64_t>(kPanel, cols - panel * kPanel);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t j = 0; j < count; ++j)
      To::store_one(From::load_one(in + ((r / kPanel) * cols + panel * kPanel + j) * kPanel + r % kPanel),
                    out + r * kPanel + j);
}

void transpose(const TransposeArgs& args) {
  with_storage(args.w->dtype(), [&](auto from) {
    for (std::int64_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
      if (args.out->dtype() == DType::kF32)
        transpose_panel<decltype(from), StoredF32>(args, panel);
      else
        transpose_panel<decltype(from), decltype(from)>(args, panel);
    }
  });
}

void weight_grad(const WeightGradArgs& args) {
  const F32 d;
  for (std::int64_t r = args.r_begin; r < args.r_end; ++r) {
    float* dw = args.dw + r * args.lddw;
    const float* dy = args.dy + r;
    std::int64_t c = 0;
    for (; c + kLanes <= args.cols; c += kLanes) {
      VF sum = args.continue_chain ? hn::LoadU(d, dw + c) : hn::Zero(d);
      for (std::int64_t m = 0; m < args.rows; ++m)
        sum = fma(hn::Set(d, dy[m * args.lddy]), hn::LoadU(d, args.x + m * args.ldx + c), sum);
      hn::StoreU(sum, d, dw + c);
    }
    for (; c < args.cols; ++c) {
      float sum = args.continue_chain ? dw[c] : 0.0f;
      for (std::int64_t m = 0; m < args.rows; ++m)
        sum = std::fma(dy[m * args.lddy], args.x[m * args.ldx + c], sum);
      dw[c] = sum;
    }
  }
}

}  // namespace

void fill_matmul_target(OpTable& table) {
  table.matmul = matmul;
  table.transpose = transpose;
  table.weight_grad = weight_grad;
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
