// ParamLayout: which parameters a model has, how they are fused, and what Hugging Face calls their parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/spec.h"

namespace rondo::model {

/// Index of a parameter in ParamLayout::params().
using ParamIndex = std::int32_t;

/// Rows of a fused parameter that are one tensor of the model folder.
struct ParamSlice {
  std::string name;  // e.g. "model.layers.0.self_attn.k_proj.weight"
  std::int64_t first_row;
  std::int64_t rows;
};

/// One parameter: a matrix [rows, cols] = [out features, in features], or a vector (rows = 1).
struct ParamInfo {
  std::string name;  // of the fused parameter, e.g. "layers.0.qkv"
  std::int64_t rows;
  std::int64_t cols;
  bool is_vector;
  std::vector<ParamSlice> slices;  // in row order, covering all rows

  std::int64_t count() const { return rows * cols; }
};

/// The parameters of one layer.
struct LayerParams {
  ParamIndex attention_norm;
  ParamIndex qkv;  // [q; k; v]
  ParamIndex output;
  ParamIndex mlp_norm;
  ParamIndex gate_up;  // [gate; up]
  ParamIndex down;
};

/// Names and shapes of all parameters of a Llama-architecture decoder, in a fixed order. Immutable.
class ParamLayout final {
 public:
  explicit ParamLayout(const ModelSpec& spec);

  const std::vector<ParamInfo>& params() const { return params_; }
  const ParamInfo& operator[](ParamIndex i) const { return params_[static_cast<std::size_t>(i)]; }
  ParamIndex embedding() const { return embedding_; }
  ParamIndex final_norm() const { return final_norm_; }
  /// The output projection: the embedding itself where it is tied.
  ParamIndex head() const { return head_; }
  const LayerParams& layer(std::int32_t l) const { return layers_[static_cast<std::size_t>(l)]; }
  /// Number of values of all parameters.
  std::int64_t total() const;

 private:
  ParamIndex add(ParamInfo info);
  LayerParams add_layer(const ModelSpec& spec, std::int32_t l);

  std::vector<ParamInfo> params_;
  std::vector<LayerParams> layers_;
  ParamIndex embedding_ = -1;
  ParamIndex final_norm_ = -1;
  ParamIndex head_ = -1;
};

/// Orders of the split sums (numbers contract, V chains; tensor parallelism by heads and by MLP columns).
struct SumOrders {
  std::vector<kernels::KSegment> output;         // forward of o_proj, over its in features
  std::vector<kernels::KSegment> down;           // forward of down_proj
  std::vector<kernels::KSegment> qkv_input;      // input gradient of qkv, over its out features
  std::vector<kernels::KSegment> gate_up_input;  // input gradient of gate_up
  std::vector<kernels::KSegment> head_input;     // input gradient of the head, over the padded vocabulary
};

SumOrders sum_orders(const ModelSpec& spec);

}  // namespace rondo::model
