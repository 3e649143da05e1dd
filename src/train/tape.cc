#include "train/tape.h"

#include <cstring>
#include <utility>

#include "base/check.h"

namespace rondo::train {

using model::ParamIndex;
using model::ResidualProjection;

Tape::Value Tape::add_node(std::int64_t width) {
  Node made;
  made.width = width;
  made.owned = in_.workspace->pool.acquire(rows() * width);
  nodes_.push_back(std::move(made));
  return static_cast<Value>(nodes_.size() - 1);
}

Tape::Value Tape::input(const float* x, std::int64_t width) {
  Node made;
  made.width = width;
  made.borrowed = x;
  nodes_.push_back(std::move(made));
  return static_cast<Value>(nodes_.size() - 1);
}

const float* Tape::data(Value v) const {
  const Node& n = nodes_[static_cast<std::size_t>(v)];
  return n.borrowed != nullptr ? n.borrowed : n.owned.data();
}

BufferPool::Handle Tape::take(Value v) {
  return std::move(node(v).owned);
}

Tape::Value Tape::rms_norm(Value x, ParamIndex weight) {
  const model::ModelSpec& spec = in_.model->spec();
  const Value out = add_node(spec.hidden);
  kernels::rms_norm(ctx(), {.x = data(x),
                            .ld = spec.hidden,
                            .weight = in_.model->weights().vector(weight),
                            .eps = spec.rms_norm_eps,
                            .width = spec.hidden,
                            .y = mutable_data(out),
                            .row_begin = 0,
                            .row_end = rows()});
  records_.push_back({.op = Op::kRmsNorm, .in = x, .out = out, .weight = weight});
  return out;
}

Tape::Value Tape::linear(Value x, ParamIndex weight) {
  const kernels::PackedMatrix& w = in_.model->weights().matrix(weight);
  const Value out = add_node(w.rows());
  kernels::matmul(ctx(), w, data(x), w.cols(), rows(), mutable_data(out), w.rows());
  records_.push_back(
      {.op = Op::kLinear, .in = x, .out = out, .weight = weight, .projection = Projection::kQkv});
  return out;
}

Tape::Value Tape::linear_swiglu(Value x, ParamIndex weight) {
  const kernels::PackedMatrix& w = in_.model->weights().matrix(weight);
  const Value gate_up = add_node(w.rows());
  const Value out = add_node(w.rows() / 2);
  kernels::matmul_swiglu(ctx(), w, data(x), w.cols(), rows(), mutable_data(gate_up), mutable_data(out));
  records_.push_back(
      {.op = Op::kLinear, .in = x, .out = gate_up, .weight = weight, .projection = Projection::kGateUp});
  records_.push_back({.op = Op::kSwiglu, .in = gate_up, .out = out});
  return out;
}

Tape::Value Tape::linear_add(Value x, ParamIndex weight, ResidualProjection which, Value residual) {
  const kernels::PackedMatrix& w = in_.model->weights().matrix(weight);
  records_.push_back({.op = Op::kLinearAdd,
                      .in = x,
                      .out = 0,
                      .residual = residual,
                      .weight = weight,
                      .residual_projection = which});
  if (mode_ == Mode::kReplay && which == ResidualProjection::kDown) {
    nodes_.emplace_back().width = w.rows();
    records_.back().out = static_cast<Value>(nodes_.size() - 1);
    return records_.back().out;
  }
  const model::SumOrders& orders = in_.model->orders();
  const Value out = add_node(w.rows());
  kernels::matmul(ctx(), w, data(x), w.cols(), rows(), mutable_data(out), w.rows(), data(residual),
                  which == ResidualProjection::kOutput ? orders.output : orders.down);
  records_.back().out = out;
  return out;
}

void Tape::rotate(float* qkv, bool inverse) {
  const model::ModelSpec& spec = in_.model->spec();
  kernels::rope(ctx(), {.x = qkv,
                        .ld = spec.qkv_width(),
                        .heads = spec.heads + spec.kv_heads,
                        .head_dim = spec.head_dim,
                        .cos_table = in_.model->rope().cosine.data(),
                        .sin_table = in_.model->rope().sine.data(),
                        .positions = in_.rows->positions().data(),
                        .inverse = inverse,
                        .row_begin = 0,
                        .row_end = rows()});
}

kernels::KvView Tape::make_kv() {
  const model::ModelSpec& spec = in_.model->spec();
  kernels::KvView kv{.base = nullptr,
                     .block_stride = 0,
                     .key_offset = 0,
                     .value_offset = 0,
                     .dtype = spec.dtype,
                     .kv_heads = spec.kv_heads,
                     .head_dim = spec.head_dim};
  kv.value_offset = kv.side_bytes();
  kv.block_stride = 2 * kv.side_bytes();
  const std::size_t bytes = kv.block_stride * static_cast<std::size_t>(in_.rows->kv_blocks());
  kv_storage_ = in_.workspace->pool.acquire(static_cast<std::int64_t>(bytes / sizeof(float)));
  kv.base = reinterpret_cast<std::byte*>(kv_storage_.data());
  std::memset(kv.base, 0, bytes);  // slots that are never written must hold finite values
  return kv;
}

void Tape::copy_prompt_tail(const kernels::KvView& kv) {
  const std::int32_t tail = in_.rows->tail_block();
  for (std::int32_t copy : in_.rows->tail_copies())
    std::memcpy(kv.base + static_cast<std::size_t>(copy) * kv.block_stride,
                kv.base + static_cast<std::size_t>(tail) * kv.block_stride, kv.block_stride);
}

Tape::Value Tape::attention(std::int32_t /*layer*/, Value qkv) {
  const model::ModelSpec& spec = in_.model->spec();
  rotate(mutable_data(qkv), false);
  records_.push_back({.op = Op::kRope, .in = qkv, .out = qkv});
  const Value out = add_node(spec.q_width());
  kv_ = make_kv();
  attention_stats_ = in_.workspace->pool.acquire(rows() * spec.heads * 2);
  const float* rows_qkv = data(qkv);
  const kernels::KvStoreArgs store{.kv = &kv_,
                                   .span = {},
                                   .k = rows_qkv + spec.q_width(),
                                   .v = rows_qkv + spec.q_width() + spec.kv_width(),
                                   .ld = spec.qkv_width()};
  const std::span<const kernels::SequenceSpan> spans = in_.rows->spans();
  kernels::kv_store(ctx(), store, spans.first(1));  // the prompt, before its tail is copied to the samples
  copy_prompt_tail(kv_);
  kernels::kv_store(ctx(), store, spans.subspan(1));
  kernels::attention(ctx(), {.kv = &kv_,
                             .spans = spans,
                             .kv_head = 0,
                             .heads = spec.heads,
                             .scale = spec.attention_scale(),
                             .q = rows_qkv,
                             .ldq = spec.qkv_width(),
                             .out = mutable_data(out),
                             .ldo = spec.q_width(),
                             .stats = attention_stats_.data()});
  records_.push_back({.op = Op::kAttention, .in = qkv, .out = out});
  return out;
}

}  // namespace rondo::train
