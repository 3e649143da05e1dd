#include <cmath>

#include "kernels/reference.h"

namespace rondo::kernels::reference {
namespace {

bool fixed_point_add(std::int64_t* sum, const float* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const double scaled = std::ldexp(static_cast<double>(x[i]), kFixedPointBits);
    if (!(std::abs(scaled) < 0x1p62)) return false;
    const auto term = static_cast<std::int64_t>(std::nearbyint(scaled));
    if (__builtin_add_overflow(sum[i], term, &sum[i])) return false;
  }
  return true;
}

double squared_norm(const std::int64_t* grad, std::int64_t count, double scale) {
  double lanes[kReduceLanes] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    const double g = static_cast<float>(static_cast<double>(grad[i]) * scale);
    lanes[i % kReduceLanes] = std::fma(g, g, lanes[i % kReduceLanes]);
  }
  return combine_lanes(lanes);
}

void adamw(const AdamWArgs& a) {
  for (std::int64_t i = 0; i < a.count; ++i) {
    const float g = static_cast<float>(static_cast<double>(a.grad[i]) * a.grad_scale) * a.clip;
    a.m[i] = std::fma(a.beta1, a.m[i], (1.0F - a.beta1) * g);
    a.v[i] = std::fma(a.beta2, a.v[i], (1.0F - a.beta2) * (g * g));
    const float update = (a.m[i] / a.bias1) / (std::sqrt(a.v[i] / a.bias2) + a.eps);
    const float direction = std::fma(a.weight_decay, a.master[i], update);
    a.master[i] = std::fma(-a.lr, direction, a.master[i]);
  }
}

}  // namespace

void fill_optimizer(OpTable& table) {
  table.fixed_point_add = fixed_point_add;
  table.squared_norm = squared_norm;
  table.adamw = adamw;
}

}  // namespace rondo::kernels::reference
