#include "model/param_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace rondo::model {
namespace {

using kernels::KSegment;

ParamInfo matrix(std::string name, std::int64_t cols, std::vector<ParamSlice> slices) {
  std::int64_t rows = 0;
  for (ParamSlice& slice : slices) {
    slice.first_row = rows;
    rows += slice.rows;
  }
  return {std::move(name), rows, cols, false, std::move(slices)};
}

ParamInfo vector_param(std::string name, std::int64_t width, std::string hf_name) {
  return {std::move(name), 1, width, true, {{std::move(hf_name), 0, 1}}};
}

// Part `chain` of `chains` of the stretch [begin, begin + length), cut into equal parts.
KSegment part(std::int32_t begin, std::int32_t length, std::int32_t chain, std::int32_t chains) {
  const std::int32_t step = length / chains;
  return {begin + step * chain, begin + step * (chain + 1), chain};
}

}  // namespace

ParamLayout::ParamLayout(const ModelSpec& spec) {
  embedding_ = add(matrix("embedding", spec.hidden, {{"model.embed_tokens.weight", 0, spec.vocab}}));
  for (std::int32_t l = 0; l < spec.layers; ++l) layers_.push_back(add_layer(spec, l));
  final_norm_ = add(vector_param("final_norm", spec.hidden, "model.norm.weight"));
  head_ = spec.tied_embeddings ? embedding_
                               : add(matrix("head", spec.hidden, {{"lm_head.weight", 0, spec.vocab}}));
}

ParamIndex ParamLayout::add(ParamInfo info) {
  params_.push_back(std::move(info));
  return static_cast<ParamIndex>(params_.size() - 1);
}

LayerParams ParamLayout::add_layer(const ModelSpec& spec, std::int32_t l) {
  const std::string hf = fmt::format("model.layers.{}.", l), own = fmt::format("layers.{}.", l);
  LayerParams p{};
  p.attention_norm = add(vector_param(own + "attention_norm", spec.hidden, hf + "input_layernorm.weight"));
  p.qkv = add(matrix(own + "qkv", spec.hidden,
                     {{hf + "self_attn.q_proj.weight", 0, spec.q_width()},
                      {hf + "self_attn.k_proj.weight", 0, spec.kv_width()},
                      {hf + "self_attn.v_proj.weight", 0, spec.kv_width()}}));
  p.output = add(matrix(own + "output", spec.q_width(), {{hf + "self_attn.o_proj.weight", 0, spec.hidden}}));
  p.mlp_norm = add(vector_param(own + "mlp_norm", spec.hidden, hf + "post_attention_layernorm.weight"));
  p.gate_up = add(matrix(own + "gate_up", spec.hidden,
                         {{hf + "mlp.gate_proj.weight", 0, spec.intermediate},
                          {hf + "mlp.up_proj.weight", 0, spec.intermediate}}));
  p.down = add(matrix(own + "down", spec.intermediate, {{hf + "mlp.down_proj.weight", 0, spec.hidden}}));
  return p;
}

std::int64_t ParamLayout::total() const {
  std::int64_t sum = 0;
  for (const ParamInfo& info : params_) sum += info.count();
  return sum;
}

SumOrders sum_orders(const ModelSpec& spec) {
  SumOrders orders;
  const std::int32_t v = spec.chains(), q = spec.q_width(), kv = spec.kv_width();
  const std::int32_t part_vocab = (spec.vocab + v - 1) / v;
  for (std::int32_t chain = 0; chain < v; ++chain) {
    orders.output.push_back(part(0, q, chain, v));
    orders.down.push_back(part(0, spec.intermediate, chain, v));
    orders.qkv_input.push_back(part(0, q, chain, v));
    orders.qkv_input.push_back(part(q, kv, chain, v));
    orders.qkv_input.push_back(part(q + kv, kv, chain, v));
    orders.gate_up_input.push_back(part(0, spec.intermediate, chain, v));
    orders.gate_up_input.push_back(part(spec.intermediate, spec.intermediate, chain, v));
    const std::int32_t begin = std::min(part_vocab * chain, spec.vocab);
    orders.head_input.push_back({begin, std::min(begin + part_vocab, spec.vocab), chain});
  }
  return orders;
}

}  // namespace rondo::model
