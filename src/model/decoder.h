// The one decoder definition, for the engine and the trainer: a template over an Ops policy.
//
// An Ops policy gives a Value type (a matrix [rows, width], fp32) and these operations on it:
//   Value rms_norm(Value x, ParamIndex weight)
//   Value linear(Value x, ParamIndex weight)                         x · weightᵀ
//   Value linear_add(Value x, ParamIndex weight, ResidualProjection which, Value residual)
//                                                                    residual + x · weightᵀ, in V chains
//   Value linear_swiglu(Value x, ParamIndex weight)                  swiglu(x · weightᵀ), the gate in front
//   Value attention(std::int32_t layer, Value qkv)                   rotates q and k, stores K and V, attends
// The engine's policy works in place on fixed buffers; the trainer's records a tape. A value passed to
// attention or as a residual is consumed: it may be overwritten.
#pragma once

#include <cstdint>

#include "model/param_layout.h"

namespace rondo::model {

/// Which projection a `linear_add` is: it decides the order of its own sum.
enum class ResidualProjection : std::uint8_t { kOutput, kDown };

/// One decoder layer (Llama architecture): x [rows, hidden] -> [rows, hidden].
template <class Ops>
typename Ops::Value decoder_layer(Ops& ops, const ParamLayout& layout, std::int32_t layer,
                                  typename Ops::Value x) {
  using Value = typename Ops::Value;
  const LayerParams& p = layout.layer(layer);
  const Value normed = ops.rms_norm(x, p.attention_norm);
  const Value attended = ops.attention(layer, ops.linear(normed, p.qkv));
  x = ops.linear_add(attended, p.output, ResidualProjection::kOutput, x);
  const Value mlp_in = ops.rms_norm(x, p.mlp_norm);
  return ops.linear_add(ops.linear_swiglu(mlp_in, p.gate_up), p.down, ResidualProjection::kDown, x);
}

/// All layers and the final norm: embedded rows -> the head's input, [rows, hidden].
template <class Ops>
typename Ops::Value decoder_body(Ops& ops, const ParamLayout& layout, std::int32_t layers,
                                 typename Ops::Value x) {
  for (std::int32_t l = 0; l < layers; ++l) x = decoder_layer(ops, layout, l, x);
  return ops.rms_norm(x, layout.final_norm());
}

}  // namespace rondo::model
