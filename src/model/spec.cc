#include "model/spec.h"

#include <cmath>

namespace rondo::model {

std::int32_t ModelSpec::chains() const {
  std::int32_t v = kernels::kMaxChains;
  while (kv_heads % v != 0 || intermediate % v != 0) v /= 2;
  return v;
}

float ModelSpec::attention_scale() const {
  return 1.0f / std::sqrt(static_cast<float>(head_dim));
}

std::int64_t ModelSpec::kv_bytes_per_token() const {
  return std::int64_t{2} * layers * kv_width() * static_cast<std::int64_t>(kernels::dtype_bytes(dtype));
}

}  // namespace rondo::model
