// matmul, transpose and weight_grad, element by element.
#include <cmath>
#include <vector>

#include "kernels/reference.h"

namespace rondo::kernels::reference {
namespace {

std::vector<float> unpacked(const PackedMatrix& w) {
  std::vector<float> values(static_cast<std::size_t>(w.rows() * w.cols()));
  w.unpack_rows(0, w.rows(), values.data());
  return values;
}

// The sum over k of one element, in the order of op_table.h.
float dot(const float* x, const float* w, std::int64_t cols, std::span<const KSegment> segments) {
  const KSegment whole = {0, static_cast<std::int32_t>(cols), 0};
  if (segments.empty()) segments = {&whole, 1};
  float chains[kMaxChains] = {};
  int num_chains = 1;
  for (const KSegment& segment : segments) {
    num_chains = std::max(num_chains, segment.chain + 1);
    for (std::int32_t k = segment.begin; k < segment.end; ++k)
      chains[segment.chain] = std::fma(x[k], w[k], chains[segment.chain]);
  }
  for (; num_chains > 1; num_chains /= 2)
    for (int i = 0; i < num_chains / 2; ++i) chains[i] = chains[2 * i] + chains[2 * i + 1];
  return chains[0];
}

void matmul(const MatmulArgs& args) {
  const std::vector<float> w = unpacked(*args.w);
  const std::int64_t cols = args.w->cols();
  const std::int64_t end = std::min(args.w->rows(), args.panel_end * kPanel);
  for (std::int64_t m = args.row_begin; m < args.row_end; ++m) {
    for (std::int64_t r = args.panel_begin * kPanel; r < end; ++r) {
      const float sum = dot(args.x + m * args.ldx, w.data() + r * cols, cols, args.segments);
      args.y[m * args.ldy + r] = args.residual ? args.residual[m * args.ldy + r] + sum : sum;
    }
  }
}

void transpose(const TransposeArgs& args) {
  const std::vector<float> w = unpacked(*args.w);
  std::vector<float> row(static_cast<std::size_t>(args.w->rows()));
  const std::int64_t end = std::min(args.w->cols(), args.panel_end * kPanel);
  for (std::int64_t c = args.panel_begin * kPanel; c < end; ++c) {
    for (std::int64_t r = 0; r < args.w->rows(); ++r)
      row[static_cast<std::size_t>(r)] = w[static_cast<std::size_t>(r * args.w->cols() + c)];
    args.out->pack_rows(c, 1, row.data());
  }
}

void weight_grad(const WeightGradArgs& args) {
  for (std::int64_t r = args.r_begin; r < args.r_end; ++r) {
    for (std::int64_t c = 0; c < args.cols; ++c) {
      float sum = args.continue_chain ? args.dw[r * args.lddw + c] : 0.0f;
      for (std::int64_t m = 0; m < args.rows; ++m)
        sum = std::fma(args.dy[m * args.lddy + r], args.x[m * args.ldx + c], sum);
      args.dw[r * args.lddw + c] = sum;
    }
  }
}

bool weight_grad_sum(const WeightGradSumArgs& args) {
  std::vector<float> dw(static_cast<std::size_t>(args.r_end * args.cols));
  weight_grad({.dy = args.dy,
               .lddy = args.lddy,
               .x = args.x,
               .ldx = args.ldx,
               .dw = dw.data(),
               .lddw = args.cols,
               .rows = args.rows,
               .cols = args.cols,
               .r_begin = args.r_begin,
               .r_end = args.r_end,
               .continue_chain = false});
  bool ok = true;
  for (std::int64_t r = args.r_begin; r < args.r_end; ++r)
    ok = table().fixed_point_add(args.sum + r * args.ldsum, dw.data() + r * args.cols, args.cols) && ok;
  return ok;
}

bool pack_rows(const PackArgs& args) {
  return args.w->pack_rows(args.first, args.count, args.source);
}

}  // namespace

void fill_matmul(OpTable& table) {
  table.matmul = matmul;
  table.transpose = transpose;
  table.weight_grad = weight_grad;
  table.weight_grad_sum = weight_grad_sum;
  table.pack_rows = pack_rows;
}

}  // namespace rondo::kernels::reference
