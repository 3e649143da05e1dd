#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pointwise.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <cmath>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/register.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::kernels::HWY_NAMESPACE {
namespace {

float inverse_rms(const float* x, std::int64_t width, float eps) {
  const float squares = reduce16(width, [x](std::int64_t i, auto io, VF lane) {
    const VF v = io.load(x + i);
    return fma(v, v, lane);
  });
  return 1.0F / std::sqrt(squares / static_cast<float>(width) + eps);
}

void rms_norm(const RmsNormArgs& a) {
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    const float* x = a.x + row * a.ld;
    float* y = a.y + row * a.ld;
    const VF r = hn::Set(F32(), inverse_rms(x, a.width, a.eps));
    for_each_vector(a.width, [&](std::int64_t i, auto io) {
      io.store(hn::Mul(hn::Mul(io.load(x + i), r), io.load(a.weight + i)), y + i);
    });
  }
}

void rms_norm_grad(const RmsNormGradArgs& a) {
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    const float* x = a.x + row * a.ld;
    const float* dy = a.dy + row * a.ld;
    float* dx = a.dx + row * a.ld;
    const float r = inverse_rms(x, a.width, a.eps);
    a.inverse_rms[row] = r;
    const float t = reduce16(a.width, [&](std::int64_t i, auto io, VF lane) {
      return fma(hn::Mul(io.load(dy + i), io.load(a.weight + i)), io.load(x + i), lane);
    });
    const VF scale = hn::Set(F32(), r);
    const VF pull = hn::Set(F32(), (((r * r) * r) * t) / static_cast<float>(a.width));
    for_each_vector(a.width, [&](std::int64_t i, auto io) {
      const VF g = hn::Mul(io.load(dy + i), io.load(a.weight + i));
      const VF gradient = fma(g, scale, hn::Neg(hn::Mul(io.load(x + i), pull)));
      io.store(hn::Add(io.load(dx + i), gradient), dx + i);
    });
  }
}

// Rows outside, columns inside: x and dy are read once in storage order, and dweight stays in the L1 cache.
void rms_norm_weight_grad(const RmsNormWeightGradArgs& a) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const float* x = a.x + row * a.ld + a.col_begin;
    const float* dy = a.dy + row * a.ld + a.col_begin;
    float* dweight = a.dweight + a.col_begin;
    const VF r = hn::Set(F32(), a.inverse_rms[row]);
    for_each_vector(a.col_end - a.col_begin, [&](std::int64_t i, auto io) {
      io.store(fma(hn::Mul(io.load(dy + i), r), io.load(x + i), io.load(dweight + i)), dweight + i);
    });
  }
}

void rope(const RopeArgs& a) {
  const std::int64_t half = a.head_dim / 2;
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    const float* cosine = a.cos_table + a.positions[row] * half;
    const float* sine = a.sin_table + a.positions[row] * half;
    for (std::int64_t head = 0; head < a.heads; ++head) {
      float* x1 = a.x + row * a.ld + head * a.head_dim;
      float* x2 = x1 + half;
      for_each_vector(half, [&](std::int64_t i, auto io) {
        const VF c = io.load(cosine + i);
        const VF s = a.inverse ? hn::Neg(io.load(sine + i)) : io.load(sine + i);
        const VF v1 = io.load(x1 + i), v2 = io.load(x2 + i);
        io.store(fma(v1, c, hn::Neg(hn::Mul(v2, s))), x1 + i);
        io.store(fma(v2, c, hn::Mul(v1, s)), x2 + i);
      });
    }
  }
}

void swiglu(const SwigluArgs& a) {
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    const float* gate = a.gate + row * a.ld_gate_up;
    const float* up = a.up + row * a.ld_gate_up;
    float* y = a.y + row * a.ldy;
    for_each_vector(a.width, [&](std::int64_t i, auto io) {
      const VF g = io.load(gate + i);
      io.store(hn::Mul(hn::Mul(g, sigmoid(g)), io.load(up + i)), y + i);
    });
  }
}

void swiglu_grad(const SwigluArgs& a) {
  const VF one = hn::Set(F32(), 1.0F);
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    const float* gate = a.gate + row * a.ld_gate_up;
    const float* up = a.up + row * a.ld_gate_up;
    const float* dy = a.dy + row * a.ldy;
    float* dgate = a.dgate + row * a.ld_gate_up;
    float* dup = a.dup + row * a.ld_gate_up;
    for_each_vector(a.width, [&](std::int64_t i, auto io) {
      const VF g = io.load(gate + i), u = io.load(up + i), d = io.load(dy + i);
      const VF s = sigmoid(g);
      io.store(hn::Mul(hn::Mul(d, u), hn::Mul(s, fma(g, hn::Sub(one, s), one))), dgate + i);
      io.store(hn::Mul(d, hn::Mul(g, s)), dup + i);
    });
  }
}

void add(float* y, const float* x, std::int64_t count) {
  for_each_vector(count,
                  [&](std::int64_t i, auto io) { io.store(hn::Add(io.load(y + i), io.load(x + i)), y + i); });
}

void pointwise_entries(OpTable& table) {
  table.rms_norm = rms_norm;
  table.rms_norm_grad = rms_norm_grad;
  table.rms_norm_weight_grad = rms_norm_weight_grad;
  table.rope = rope;
  table.swiglu = swiglu;
  table.swiglu_grad = swiglu_grad;
  table.add = add;
}

}  // namespace
}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::kernels {
HWY_EXPORT(pointwise_entries);

void cpu::fill_pointwise(OpTable& table) {
  HWY_DYNAMIC_DISPATCH(pointwise_entries)(table);
}

}  // namespace rondo::kernels
#endif  // HWY_ONCE
