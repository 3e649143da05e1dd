#include <cmath>

#include "kernels/reference.h"
#include "kernels/reference_math.h"

namespace rondo::kernels::reference {
namespace {

float inverse_rms(const float* x, std::int64_t width, float eps) {
  float lanes[kReduceLanes] = {};
  for (std::int64_t i = 0; i < width; ++i)
    lanes[i % kReduceLanes] = std::fma(x[i], x[i], lanes[i % kReduceLanes]);
  return 1.0F / std::sqrt(combine_lanes(lanes) / static_cast<float>(width) + eps);
}

void rms_norm(const RmsNormArgs& a) {
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    const float* x = a.x + row * a.ld;
    const float r = inverse_rms(x, a.width, a.eps);
    for (std::int64_t i = 0; i < a.width; ++i) a.y[row * a.ld + i] = (x[i] * r) * a.weight[i];
  }
}

void rms_norm_grad(const RmsNormGradArgs& a) {
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    const float* x = a.x + row * a.ld;
    const float* dy = a.dy + row * a.ld;
    const float r = inverse_rms(x, a.width, a.eps);
    a.inverse_rms[row] = r;
    float lanes[kReduceLanes] = {};
    for (std::int64_t i = 0; i < a.width; ++i)
      lanes[i % kReduceLanes] = std::fma(dy[i] * a.weight[i], x[i], lanes[i % kReduceLanes]);
    const float t = combine_lanes(lanes);
    const float pull = (((r * r) * r) * t) / static_cast<float>(a.width);
    for (std::int64_t i = 0; i < a.width; ++i)
      a.dx[row * a.ld + i] += std::fma(dy[i] * a.weight[i], r, -(x[i] * pull));
  }
}

void rms_norm_weight_grad(const RmsNormWeightGradArgs& a) {
  for (std::int64_t c = a.col_begin; c < a.col_end; ++c)
    for (std::int64_t row = 0; row < a.rows; ++row)
      a.dweight[c] = std::fma(a.dy[row * a.ld + c] * a.inverse_rms[row], a.x[row * a.ld + c], a.dweight[c]);
}

void rope(const RopeArgs& a) {
  const std::int64_t half = a.head_dim / 2;
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row)
    for (std::int64_t head = 0; head < a.heads; ++head)
      for (std::int64_t i = 0; i < half; ++i) {
        const float c = a.cos_table[a.positions[row] * half + i];
        const float s = a.sin_table[a.positions[row] * half + i] * (a.inverse ? -1.0F : 1.0F);
        float& first = a.x[row * a.ld + head * a.head_dim + i];
        float& second = a.x[row * a.ld + head * a.head_dim + half + i];
        const float x1 = first, x2 = second;
        first = std::fma(x1, c, -(x2 * s));
        second = std::fma(x2, c, x1 * s);
      }
}

void swiglu(const SwigluArgs& a) {
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row)
    for (std::int64_t i = 0; i < a.width; ++i) {
      const float gate = a.gate[row * a.ld_gate_up + i];
      const float up = a.up[row * a.ld_gate_up + i];
      a.y[row * a.ldy + i] = (gate * sigmoid(gate)) * up;
    }
}

void swiglu_grad(const SwigluArgs& a) {
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row)
    for (std::int64_t i = 0; i < a.width; ++i) {
      const float gate = a.gate[row * a.ld_gate_up + i];
      const float up = a.up[row * a.ld_gate_up + i];
      const float dy = a.dy[row * a.ldy + i];
      const float s = sigmoid(gate);
      a.dgate[row * a.ld_gate_up + i] = (dy * up) * (s * std::fma(gate, 1.0F - s, 1.0F));
      a.dup[row * a.ld_gate_up + i] = dy * (gate * s);
    }
}

void add(float* y, const float* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = y[i] + x[i];
}

}  // namespace

void fill_pointwise(OpTable& table) {
  table.rms_norm = rms_norm;
  table.rms_norm_grad = rms_norm_grad;
  table.rms_norm_weight_grad = rms_norm_weight_grad;
  table.rope = rope;
  table.swiglu = swiglu;
  table.swiglu_grad = swiglu_grad;
  table.add = add;
}

}  // namespace rondo::kernels::reference
