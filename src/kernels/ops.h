// The kernels as the model sees them: each call divides one operation over the threads of a context.
//
// The division never changes a bit of the result. Arguments are those of op_table.h over the whole range
// (row_begin = 0, row_end = rows, …); matrices are row-major fp32 with leading dimensions in elements.
// Nothing here allocates, save matmul_input_grad when its scratch has the wrong shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/op_table.h"

namespace rondo::kernels {

/// What a caller computes with: a target's table and a team of threads. Neither is owned. All calls with one
/// pool come from the pool's owner thread.
struct Context {
  const OpTable* table;
  ThreadPool* pool;
};

/// y[m, r] = sum_k x[m, k] * w[r, k], plus residual[m, r] if given (it has y's leading dimension and may be
/// y itself). x is [rows, w.cols()], y is [rows, w.rows()]; `segments` as in MatmulArgs.
void matmul(const Context& ctx, const PackedMatrix& w, const float* x, std::int64_t ldx, std::int64_t rows,
            float* y, std::int64_t ldy, const float* residual = nullptr,
            std::span<const KSegment> segments = {});

/// gate_up = x * wᵀ, [rows, w.rows()], the gate in its first half of columns, and y = swiglu of the halves,
/// [rows, w.rows() / 2]; both without gaps between rows. In one go, so that each thread activates what it has
/// just computed.
void matmul_swiglu(const Context& ctx, const PackedMatrix& w, const float* x, std::int64_t ldx,
                   std::int64_t rows, float* gate_up, float* y);

/// What matmul_input_grad computes besides the product.
struct InputGradOptions {
  bool accumulate = false;  // dx += dy * w, one rounded addition per element, instead of dx = dy * w
  std::span<const KSegment> segments = {};  // order of the sum over w's rows
};

/// dx[m, c] = sum_r dy[m, r] * w[r, c], r ascending. dy is [rows, w.rows()], dx is [rows, w.cols()].
/// `transposed` holds the transpose of w afterwards; it is replaced unless it already has that shape and w's
/// dtype, so keep one per shape of weight.
void matmul_input_grad(const Context& ctx, const PackedMatrix& w, const float* dy, std::int64_t lddy,
                       std::int64_t rows, float* dx, std::int64_t lddx, PackedMatrix& transposed,
                       InputGradOptions options = {});

/// All panels of `out`, which has shape [w.cols(), w.rows()] and w's dtype or fp32.
void transpose(const Context& ctx, const PackedMatrix& w, PackedMatrix& out);

void weight_grad(const Context& ctx, const WeightGradArgs& args);
/// False if something does not fit (the sum is then void).
bool weight_grad_sum(const Context& ctx, const WeightGradSumArgs& args);

/// Attention for all KV heads (`args.kv_head` is ignored). Rows are shared out so that each thread gets about
/// the same number of (row, position) pairs.
void attention(const Context& ctx, const AttentionArgs& args);

/// Bytes of `AttentionGradArgs::scratch` for the call below.
std::size_t attention_grad_scratch(const Context& ctx, std::int64_t rows, const KvView& kv,
                                   std::int32_t heads);
/// Backward for all KV heads (`args.kv_head` is ignored), divided by KV head.
void attention_grad(const Context& ctx, const AttentionGradArgs& args);

/// Stores the rows of every span (`args.span` is ignored). No two spans may share a written position.
void kv_store(const Context& ctx, const KvStoreArgs& args, std::span<const SequenceSpan> spans);
/// rope of all rows, then the same, in one go: each thread stores the rows that it has rotated.
void rope_and_store(const Context& ctx, const RopeArgs& rope, const KvStoreArgs& args,
                    std::span<const SequenceSpan> spans);

void rms_norm(const Context& ctx, const RmsNormArgs& args);
void rms_norm_grad(const Context& ctx, const RmsNormGradArgs& args);
void rms_norm_weight_grad(const Context& ctx, const RmsNormWeightGradArgs& args);
void rope(const Context& ctx, const RopeArgs& args);
void swiglu(const Context& ctx, const SwigluArgs& args);
void swiglu_grad(const Context& ctx, const SwigluArgs& args);
void add(const Context& ctx, float* y, const float* x, std::int64_t count);

/// One row of logits per element; see SoftmaxStats.
struct SoftmaxRow {
  const float* logits;  // [vocab]
  float temperature;
};
/// stats[i] = the statistics of rows[i].
void softmax_stats(const Context& ctx, std::span<const SoftmaxRow> rows, std::int64_t vocab,
                   std::int32_t chains, std::span<SoftmaxStats> stats);
/// One call per row, each a row of its own.
void softmax_grad(const Context& ctx, std::span<const SoftmaxGradArgs> rows);

/// False if any element was NaN, infinite or overflowed (the sum is then void).
bool fixed_point_add(const Context& ctx, std::int64_t* sum, const float* x, std::int64_t count);
/// Elements per block of the gradient norm: part of the numbers contract.
inline constexpr std::int64_t kNormBlock = 65536;
/// blocks[i] = squared_norm of elements [i * kNormBlock, …) of one named tensor; ceil(count / kNormBlock)
/// blocks.
void squared_norms(const Context& ctx, const std::int64_t* grad, std::int64_t count, double scale,
                   std::span<double> blocks);
void adamw(const Context& ctx, const AdamWArgs& args);

}  // namespace rondo::kernels
