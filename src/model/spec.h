// ModelSpec: the dimensions of a decoder and the numeric choices that follow from them.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace rondo::model {

/// What a decoder is, apart from its weights. Plain values, checked by hf::ModelConfig before they get here.
struct ModelSpec {
  std::int32_t hidden = 0;
  std::int32_t intermediate = 0;
  std::int32_t layers = 0;
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t vocab = 0;
  std::int32_t max_positions = 0;
  float rms_norm_eps = 0;
  double rope_theta = 0;
  bool tied_embeddings = false;
  /// Storage of weights and KV.
  kernels::DType dtype = kernels::DType::kF16;

  std::int32_t q_width() const { return heads * head_dim; }
  std::int32_t kv_width() const { return kv_heads * head_dim; }
  std::int32_t qkv_width() const { return q_width() + 2 * kv_width(); }
  /// V of the numbers contract: the chains of every sum that tensor parallelism would split; the largest
  /// power of two up to 8 that divides the KV heads and the MLP width.
  std::int32_t chains() const;
  /// Attention scale, 1 / sqrt(head_dim).
  float attention_scale() const;
  /// Bytes of K and V of one token over all layers.
  std::int64_t kv_bytes_per_token() const;

  bool operator==(const ModelSpec&) const = default;
};

}  // namespace rondo::model
