// The backward half of Tape: one function per operation.
#include <cstring>
#include <utility>

#include "base/check.h"
#include "train/tape.h"

namespace rondo::train {

using model::ParamIndex;
using model::ResidualProjection;

float* Tape::grad(Value v) {
  Node& n = node(v);
  if (n.grad.empty()) n.grad = in_.workspace->pool.acquire(rows() * n.width);
  return n.grad.data();
}

Result<BufferPool::Handle> Tape::backward(Value out, BufferPool::Handle dout, GradientSum& sum) {
  node(out).grad = std::move(dout);
  for (auto record = records_.rbegin(); record != records_.rend(); ++record) {
    RONDO_TRY(step_back(*record, sum));
    // Whatever this operation produced has been used for the last time.
    if (record->out != record->in) {
      node(record->out).owned.release();
      node(record->out).grad.release();
    }
  }
  records_.clear();
  return std::move(node(0).grad);
}

Result<void> Tape::step_back(const Record& record, GradientSum& sum) {
  switch (record.op) {
    case Op::kRmsNorm:
      return rms_norm_back(record, sum);
    case Op::kLinear:
      return linear_back(record, sum);
    case Op::kLinearAdd:
      return linear_add_back(record, sum);
    case Op::kRope:
      rotate(grad(record.in), true);
      return {};
    case Op::kAttention:
      attention_back(record);
      return {};
    case Op::kSwiglu:
      swiglu_back(record);
      return {};
  }
  return {};
}

Result<void> Tape::rms_norm_back(const Record& record, GradientSum& sum) {
  const model::ModelSpec& spec = in_.model->spec();
  Node& x = node(record.in);
  if (x.grad.empty()) {  // no residual path added to it
    x.grad = in_.workspace->pool.acquire(rows() * x.width);
    std::memset(x.grad.data(), 0, static_cast<std::size_t>(rows() * x.width) * sizeof(float));
  }
  BufferPool::Handle inverse_rms = in_.workspace->pool.acquire(rows());
  kernels::rms_norm_grad(ctx(), {.x = data(record.in),
                                 .dy = grad(record.out),
                                 .ld = spec.hidden,
                                 .weight = in_.model->weights().vector(record.weight),
                                 .eps = spec.rms_norm_eps,
                                 .width = spec.hidden,
                                 .dx = x.grad.data(),
                                 .inverse_rms = inverse_rms.data(),
                                 .row_begin = 0,
                                 .row_end = rows()});
  BufferPool::Handle dweight = in_.workspace->pool.acquire(spec.hidden);
  std::memset(dweight.data(), 0, static_cast<std::size_t>(spec.hidden) * sizeof(float));
  kernels::rms_norm_weight_grad(ctx(), {.x = data(record.in),
                                        .dy = grad(record.out),
                                        .ld = spec.hidden,
                                        .inverse_rms = inverse_rms.data(),
                                        .rows = rows(),
                                        .dweight = dweight.data(),
                                        .col_begin = 0,
                                        .col_end = spec.hidden});
  return sum.add(record.weight, 0, 1, dweight.data());
}

Result<void> Tape::linear_back(const Record& record, GradientSum& sum) {
  const model::SumOrders& orders = in_.model->orders();
  const kernels::PackedMatrix& w = in_.model->weights().matrix(record.weight);
  Workspace& ws = *in_.workspace;
  const bool qkv = record.projection == Projection::kQkv;
  kernels::matmul_input_grad(ctx(), w, grad(record.out), w.rows(), rows(), grad(record.in), w.cols(),
                             qkv ? ws.qkv_transposed : ws.gate_up_transposed,
                             {.segments = qkv ? orders.qkv_input : orders.gate_up_input});
  return sum.add_product(record.weight, grad(record.out), data(record.in), rows());
}

Result<void> Tape::linear_add_back(const Record& record, GradientSum& sum) {
  const kernels::PackedMatrix& w = in_.model->weights().matrix(record.weight);
  Workspace& ws = *in_.workspace;
  const bool output = record.residual_projection == ResidualProjection::kOutput;
  kernels::matmul_input_grad(ctx(), w, grad(record.out), w.rows(), rows(), grad(record.in), w.cols(),
                             output ? ws.output_transposed : ws.down_transposed, {});
  RONDO_TRY(sum.add_product(record.weight, grad(record.out), data(record.in), rows()));
  // The residual path passes the gradient on unchanged; what reads the residual later adds to it.
  RONDO_CHECK(node(record.residual).grad.empty());
  node(record.residual).grad = std::move(node(record.out).grad);
  return {};
}

void Tape::attention_back(const Record& record) {
  const model::ModelSpec& spec = in_.model->spec();
  float* dqkv = grad(record.in);
  const std::size_t scratch = kernels::attention_grad_scratch(ctx(), rows(), kv_, spec.heads);
  kernels::attention_grad(ctx(), {.kv = &kv_,
                                  .spans = in_.rows->spans(),
                                  .position_rows = in_.rows->position_rows().data(),
                                  .span_position_begin = in_.rows->span_position_begin().data(),
                                  .kv_head = 0,
                                  .heads = spec.heads,
                                  .scale = spec.attention_scale(),
                                  .q = data(record.in),
                                  .ldq = spec.qkv_width(),
                                  .out = data(record.out),
                                  .dout = grad(record.out),
                                  .ldo = spec.q_width(),
                                  .stats = attention_stats_.data(),
                                  .dq = dqkv,
                                  .lddq = spec.qkv_width(),
                                  .dk = dqkv + spec.q_width(),
                                  .dv = dqkv + spec.q_width() + spec.kv_width(),
                                  .lddkv = spec.qkv_width(),
                                  .rows = rows(),
                                  .scratch = in_.workspace->scratch(scratch)});
  kv_storage_.release();
  attention_stats_.release();
}

void Tape::swiglu_back(const Record& record) {
  const std::int64_t width = in_.model->spec().intermediate;
  float* dgate_up = grad(record.in);
  kernels::swiglu_grad(ctx(), {.gate = data(record.in),
                               .up = data(record.in) + width,
                               .ld_gate_up = 2 * width,
                               .y = nullptr,
                               .dy = grad(record.out),
                               .dgate = dgate_up,
                               .dup = dgate_up + width,
                               .ldy = width,
                               .width = width,
                               .row_begin = 0,
                               .row_end = rows()});
}

}  // namespace rondo::train
