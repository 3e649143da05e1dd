// ModelShape: the figures of a model that decide how long its steps take and how much KV it writes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace rondo::sim {

/// A decoder's dimensions, as its config.json has them. A plain value.
struct ModelShape {
  std::string name;
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;  // 0: latent attention (MLA)
  int head_dim = 0;  // MLA: of the part of a query without positions, and of a value
  int q_rank = 0;    // MLA: 0: queries are projected at once
  int kv_rank = 0;
  int rope_dim = 0;
  int dense_layers = 0;  // with one MLP instead of experts
  int mlp = 0;           // its width
  int experts = 0;       // of each other layer
  int experts_per_token = 0;
  int shared_experts = 0;
  int expert_mlp = 0;
  int vocabulary = 0;
  bool tied = false;          // one matrix for embedding and head
  double other_params = 0.0;  // resident but not used in decoding: a vision tower
  double weight_bytes = 2.0;  // per parameter
  double kv_value_bytes = 2.0;

  bool latent() const { return kv_heads == 0; }
  double kv_bytes_per_token() const;
  /// Parameters of one routed expert.
  double expert_params() const;
  int expert_layers() const { return experts > 0 ? layers - dense_layers : 0; }
  /// All routed experts of all layers.
  double routed_params() const;
  /// What every token passes, routed experts and embedding aside.
  double dense_params() const;
  double active_params() const;
  /// All that lies in memory.
  double total_params() const;
  /// Multiply-adds times two of one query over one position of context, all layers.
  double attention_flops() const;
};

/// The model of this name. kInvalidArgument with the nearest name if there is none. Any thread.
Result<ModelShape> find_model(std::string_view name);

}  // namespace rondo::sim
