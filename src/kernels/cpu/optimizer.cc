#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <cstring>

#include "kernels/cpu/fixed_point-inl.h"
#include "kernels/cpu/register.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::kernels::HWY_NAMESPACE {
namespace {

// float(double(grad) * scale) of one vector of doubles.
HWY_INLINE hn::Vec<HalfF32> scaled_gradient(const std::int64_t* grad, VD scale) {
  return hn::DemoteTo(HalfF32(), hn::Mul(hn::ConvertTo(F64(), hn::LoadU(I64(), grad)), scale));
}

// The square of an fp32 value is exact in fp64, so a product and a sum round like one fma.
HWY_INLINE void add_squares(const std::int64_t* grad, VD scale, VD* lanes) {
  for (int j = 0; j < kReduceLanes / kDoubleLanes; ++j) {
    const VD g = hn::PromoteTo(F64(), scaled_gradient(grad + j * kDoubleLanes, scale));
    lanes[j] = hn::Add(hn::Mul(g, g), lanes[j]);
  }
}

double squared_norm(const std::int64_t* grad, std::int64_t count, double scale) {
  const F64 d;
  const VD scales = hn::Set(d, scale);
  VD vectors[kReduceLanes / kDoubleLanes];
  for (VD& v : vectors) v = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + kReduceLanes <= count; i += kReduceLanes) add_squares(grad + i, scales, vectors);
  if (i < count) {  // a zero gradient leaves its lane as it is
    std::int64_t rest[kReduceLanes] = {};
    std::memcpy(rest, grad + i, static_cast<std::size_t>(count - i) * sizeof(std::int64_t));
    add_squares(rest, scales, vectors);
  }
  alignas(64) double lanes[kReduceLanes];
  for (int j = 0; j < kReduceLanes / kDoubleLanes; ++j) hn::Store(vectors[j], d, lanes + j * kDoubleLanes);
  for (int width = kReduceLanes / 2; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  return lanes[0];
}

// The update of one vector at the given addresses; everything else is in `a`.
HWY_INLINE void adamw_vector(const AdamWArgs& a, float* master, float* m, float* v,
                             const std::int64_t* grad) {
  const F32 d;
  const VD scale = hn::Set(F64(), a.grad_scale);
#if HWY_TARGET == HWY_SCALAR  // one lane: there are no halves
  const VF scaled = scaled_gradient(grad, scale);
#else
  const VF scaled = hn::Combine(d, scaled_gradient(grad + kDoubleLanes, scale), scaled_gradient(grad, scale));
#endif
  const VF g = hn::Mul(scaled, hn::Set(d, a.clip));
  const VF new_m = fma(hn::Set(d, a.beta1), hn::LoadU(d, m), hn::Mul(hn::Set(d, 1.0F - a.beta1), g));
  const VF new_v =
      fma(hn::Set(d, a.beta2), hn::LoadU(d, v), hn::Mul(hn::Set(d, 1.0F - a.beta2), hn::Mul(g, g)));
  const VF root = hn::Sqrt(hn::Div(new_v, hn::Set(d, a.bias2)));
  const VF update = hn::Div(hn::Div(new_m, hn::Set(d, a.bias1)), hn::Add(root, hn::Set(d, a.eps)));
  const VF old = hn::LoadU(d, master);
  const VF direction = fma(hn::Set(d, a.weight_decay), old, update);
  hn::StoreU(new_m, d, m);
  hn::StoreU(new_v, d, v);
  hn::StoreU(fma(hn::Set(d, -a.lr), direction, old), d, master);
}

void adamw(const AdamWArgs& a) {
  std::int64_t i = 0;
  for (; i + kLanes <= a.count; i += kLanes) adamw_vector(a, a.master + i, a.m + i, a.v + i, a.grad + i);
  if (i == a.count) return;
  const auto rest = static_cast<std::size_t>(a.count - i);
  float master[kLanes] = {}, m[kLanes] = {}, v[kLanes] = {};
  std::int64_t grad[kLanes] = {};
  std::memcpy(master, a.master + i, rest * sizeof(float));
  std::memcpy(m, a.m + i, rest * sizeof(float));
  std::memcpy(v, a.v + i, rest * sizeof(float));
  std::memcpy(grad, a.grad + i, rest * sizeof(std::int64_t));
  adamw_vector(a, master, m, v, grad);
  std::memcpy(a.master + i, master, rest * sizeof(float));
  std::memcpy(a.m + i, m, rest * sizeof(float));
  std::memcpy(a.v + i, v, rest * sizeof(float));
}

void optimizer_entries(OpTable& table) {
  table.fixed_point_add = fixed_point_add;
  table.squared_norm = squared_norm;
  table.adamw = adamw;
}

}  // namespace
}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::kernels {
HWY_EXPORT(optimizer_entries);

void cpu::fill_optimizer(OpTable& table) {
  HWY_DYNAMIC_DISPATCH(optimizer_entries)(table);
}

}  // namespace rondo::kernels
#endif  // HWY_ONCE
