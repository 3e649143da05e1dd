#include "engine/forward.h"

#include <cstring>

#include "base/check.h"

namespace rondo::engine {
namespace {

AlignedBuffer<float> matrix(std::int64_t rows, std::int64_t width) {
  return AlignedBuffer<float>(static_cast<std::size_t>(rows * width));
}

}  // namespace

Forward::Forward(const model::Model& model, KvStorage& kv, const kernels::Context& context,
                 std::int64_t max_rows)
    : model_(&model), kv_(&kv), context_(context), max_rows_(max_rows) {
  const model::ModelSpec& spec = model.spec();
  x_ = matrix(max_rows, spec.hidden);
  normed_ = matrix(max_rows, spec.hidden);
  qkv_ = matrix(max_rows, spec.qkv_width());
  attended_ = matrix(max_rows, spec.q_width());
  gate_up_ = matrix(max_rows, 2 * std::int64_t{spec.intermediate});
  activated_ = matrix(max_rows, spec.intermediate);
  gathered_ = matrix(kLogitRows, spec.hidden);
  logits_ = matrix(kLogitRows, spec.vocab);
}

std::size_t Forward::bytes() const {
  std::size_t sum = 0;
  for (const auto* buffer : {&x_, &normed_, &qkv_, &attended_, &gate_up_, &activated_, &gathered_, &logits_})
    sum += buffer->bytes();
  return sum;
}

void Forward::embed() {
  const std::int64_t hidden = model_->spec().hidden;
  context_.pool->parallel_for(num_rows(), 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      model_->weights().load(model_->layout().embedding(), rows_.tokens[static_cast<std::size_t>(r)], 1,
                             x_.data() + r * hidden);
  });
}

void Forward::run(const Rows& rows) {
  RONDO_CHECK_LE(static_cast<std::int64_t>(rows.tokens.size()), max_rows_);
  rows_ = rows;
  embed();
  // The final norm's result stays in normed_, where logits() finds it.
  model::decoder_body(*this, model_->layout(), model_->spec().layers,
                      Value{x_.data(), model_->spec().hidden});
}

const float* Forward::logits(std::span<const std::int32_t> rows) {
  const model::ModelSpec& spec = model_->spec();
  RONDO_CHECK_LE(static_cast<std::int64_t>(rows.size()), kLogitRows);
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::memcpy(gathered_.data() + i * static_cast<std::size_t>(spec.hidden),
                normed_.data() + std::int64_t{rows[i]} * spec.hidden,
                static_cast<std::size_t>(spec.hidden) * sizeof(float));
  kernels::matmul(context_, model_->weights().matrix(model_->layout().head()), gathered_.data(), spec.hidden,
                  static_cast<std::int64_t>(rows.size()), logits_.data(), spec.vocab);
  return logits_.data();
}

Forward::Value Forward::rms_norm(Value x, model::ParamIndex weight) {
  const model::ModelSpec& spec = model_->spec();
  kernels::rms_norm(context_, {.x = x.data,
                               .ld = spec.hidden,
                               .weight = model_->weights().vector(weight),
                               .eps = spec.rms_norm_eps,
                               .width = spec.hidden,
                               .y = normed_.data(),
                               .row_begin = 0,
                               .row_end = num_rows()});
  return {normed_.data(), spec.hidden};
}

// The only one of a decoder makes q, k and v.
Forward::Value Forward::linear(Value x, model::ParamIndex weight) {
  const kernels::PackedMatrix& w = model_->weights().matrix(weight);
  kernels::matmul(context_, w, x.data, w.cols(), num_rows(), qkv_.data(), w.rows());
  return {qkv_.data(), w.rows()};
}

Forward::Value Forward::linear_add(Value x, model::ParamIndex weight, model::ResidualProjection which,
                                   Value residual) {
  const kernels::PackedMatrix& w = model_->weights().matrix(weight);
  const model::SumOrders& orders = model_->orders();
  kernels::matmul(context_, w, x.data, w.cols(), num_rows(), residual.data, w.rows(), residual.data,
                  which == model::ResidualProjection::kOutput ? orders.output : orders.down);
  return residual;
}

void Forward::rotate_and_store(const kernels::KvView& view, Value qkv) {
  const model::ModelSpec& spec = model_->spec();
  const kernels::RopeArgs rope{.x = qkv.data,
                               .ld = qkv.width,
                               .heads = spec.heads + spec.kv_heads,
                               .head_dim = spec.head_dim,
                               .cos_table = model_->rope().cosine.data(),
                               .sin_table = model_->rope().sine.data(),
                               .positions = rows_.positions.data(),
                               .inverse = false,
                               .row_begin = 0,
                               .row_end = num_rows()};
  const kernels::KvStoreArgs store{.kv = &view,
                                   .span = {},
                                   .k = qkv.data + spec.q_width(),
                                   .v = qkv.data + spec.q_width() + spec.kv_width(),
                                   .ld = qkv.width};
  kernels::rope_and_store(context_, rope, store, rows_.spans);
  if (!rows_.extra_stores.empty()) kernels::kv_store(context_, store, rows_.extra_stores);
}

Forward::Value Forward::attention(std::int32_t layer, Value qkv) {
  const model::ModelSpec& spec = model_->spec();
  const kernels::KvView& view = kv_->layer(layer);
  rotate_and_store(view, qkv);
  kernels::attention(context_, {.kv = &view,
                                .spans = rows_.spans,
                                .kv_head = 0,
                                .heads = spec.heads,
                                .scale = spec.attention_scale(),
                                .q = qkv.data,
                                .ldq = qkv.width,
                                .out = attended_.data(),
                                .ldo = spec.q_width(),
                                .stats = nullptr});
  return {attended_.data(), spec.q_width()};
}

Forward::Value Forward::linear_swiglu(Value x, model::ParamIndex weight) {
  const kernels::PackedMatrix& w = model_->weights().matrix(weight);
  kernels::matmul_swiglu(context_, w, x.data, w.cols(), num_rows(), gate_up_.data(), activated_.data());
  return {activated_.data(), model_->spec().intermediate};
}

}  // namespace rondo::engine
