// The op table of a device: one entry per operation, forward and backward, single-threaded on a given share
// of the work. `ops.h` divides the work over threads. Every target (AVX-512, AVX2, portable) gives the same
// bits; op_table_test compares each with the plain loops of `reference.h`.
//
// Notation: fma chains start at +0 unless said otherwise and visit indices in ascending order. reduce16 is
// the sum in 16 virtual lanes: lane j takes indices j, j+16, … in order (each lane starts at +0), then lanes
// combine as l[j] += l[j+8] (j<8), += l[j+4] (j<4), += l[j+2] (j<2), l[0]+l[1]. exp, log, sigmoid are those
// of cpu/math-inl.h. Matrices are row-major fp32 with a leading dimension in elements, unless packed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/types.h"

namespace rondo::kernels {

/// y[m, r] = sum_k x[m, k] * w[r, k] for rows m in [row_begin, row_end) and panels [panel_begin, panel_end).
/// With `residual` (may alias y, same leading dimension): y = residual + sum (one rounded addition).
struct MatmulArgs {
  const PackedMatrix* w;
  const float* x;
  std::int64_t ldx;
  float* y;
  std::int64_t ldy;
  const float* residual;
  std::int64_t row_begin, row_end;
  std::int64_t panel_begin, panel_end;
  std::span<const KSegment> segments;  // order of the sum over k; empty: one chain over [0, cols)
};

/// out (a PackedMatrix in fp32 or the source's dtype, [cols, rows] of w) = transpose of w, for panels of the
/// result [panel_begin, panel_end). The transient right-hand side of input gradients: dx = dy * w is the
/// matmul of dy with it.
struct TransposeArgs {
  const PackedMatrix* w;
  PackedMatrix* out;
  std::int64_t panel_begin, panel_end;
};

/// dw[r, c] = chain over m ascending of fma(dy[m, r], x[m, c], dw[r, c]), for r in [r_begin, r_end), all c <
/// cols. The chain starts at +0, or at the present dw if `continue_chain`.
struct WeightGradArgs {
  const float* dy;
  std::int64_t lddy;
  const float* x;
  std::int64_t ldx;
  float* dw;
  std::int64_t lddw;
  std::int64_t rows;  // m
  std::int64_t cols;  // c
  std::int64_t r_begin, r_end;
  bool continue_chain;
};

/// sum[r, c] += fixed point of weight_grad's dw[r, c], whose chain starts at +0, as by fixed_point_add; dw
/// itself is not kept.
struct WeightGradSumArgs {
  const float* dy;
  std::int64_t lddy;
  const float* x;
  std::int64_t ldx;
  std::int64_t* sum;
  std::int64_t ldsum;
  std::int64_t rows;  // m
  std::int64_t cols;  // c
  std::int64_t r_begin, r_end;
};

/// PackedMatrix::pack_rows: rounds fp32 source [count, cols] and packs it to rows [first, first + count) of
/// w.
struct PackArgs {
  PackedMatrix* w;
  std::int64_t first;
  std::int64_t count;
  const float* source;
};

/// Causal attention of query rows over paged KV: any number of spans, one KV head and its group of query
/// heads. Query head h = kv_head * group + g reads q[row, h * head_dim + d]; scores s = (chain over d of q*k)
/// * scale. Per absolute block of 64 positions b (visible positions p <= row's position only):
///   m_b = max s, a zero as +0;  e_p = exp(s_p - m_b);  l_b = reduce16 of e over the slots of the block;
///   o_b[d] = chain over p of e_p * v_p[d]
/// and blocks combine in ascending order, starting from block 0's values:
///   m' = max(m, m_b); a = exp(m - m'); c = exp(m_b - m'); l = fma(l, a, l_b * c); o[d] = fma(o[d], a, o_b[d]
///   * c)
/// out[row, h * head_dim + d] = o[d] / l, a zero as +0. If stats is set: stats[(row * heads + h) * 2] = m,
/// [+1] = l (final). Each row depends on its own position and blocks alone: how rows are divided over spans
/// and calls changes nothing. Neighbouring spans whose tables agree in a block read it once (48 rows of query
/// heads at a time), so list the samples of one prompt side by side.
struct AttentionArgs {
  const KvView* kv;
  std::span<const SequenceSpan> spans;  // rows index q, out and stats
  std::int32_t kv_head;
  std::int32_t heads;  // query heads, a multiple of kv heads
  float scale;
  const float* q;
  std::int64_t ldq;
  float* out;  // may not overlap q
  std::int64_t ldo;
  float* stats;  // [rows of the batch, heads, 2] or null
};

/// Backward of attention for one KV head over all rows of a unit (spans in unit order: first_row ascending,
/// later spans may share blocks with the first). With p = exp(s - m) / l (m, l from stats; s as forward),
/// D = reduce16 over d of do*o (each lane an fma chain), dp = chain over d of do*v, ds = (p * (dp - D)) *
/// scale:
///   dq[row, h, d] = chain over p ascending of ds * k_p[d]
///   dk[p's row, kv_head, d] = chain over (row ascending, head of the group ascending) of ds * q[row, h, d]
///   dv[p's row, kv_head, d] = same order, of p * do[row, h, d]
/// each over the pairs (row, position) that attention pairs, a zero as +0. The unit row that owns position p
/// of span i is position_rows[span_position_begin[i] + p]: a sample's span maps the prompt's positions to the
/// prompt's rows. Rows of dk/dv are written for every unit row, heads of this kv_head only.
struct AttentionGradArgs {
  const KvView* kv;
  std::span<const SequenceSpan> spans;
  const std::int32_t* position_rows;
  const std::int64_t* span_position_begin;
  std::int32_t kv_head;
  std::int32_t heads;
  float scale;
  const float* q;  // [rows, ldq], after rope
  std::int64_t ldq;
  const float* out;   // forward output [rows, ldo]
  const float* dout;  // [rows, ldo]
  std::int64_t ldo;
  const float* stats;  // [rows, heads, 2]
  float* dq;           // [rows, lddq]
  std::int64_t lddq;
  float* dk;  // [rows, lddk], head kv_head at kv_head * head_dim
  float* dv;
  std::int64_t lddkv;
  std::int64_t rows;             // unit rows
  std::span<std::byte> scratch;  // attention_grad_scratch bytes, 64-byte aligned
};

/// Statistics of softmax(x / T) over a vocabulary row, x = logits / T (a true division; T = 1 leaves the
/// bits). The vocabulary is cut into `chains` contiguous parts of ceil(vocab / chains) columns; each part is
/// a reduce16 (lane = index in the part mod 16), parts combine by the fixed tree of neighbours. max over all,
/// never -0; sum = sum exp(x - max); weighted = sum exp(x - max) * (x - max), each lane an fma chain.
/// All three are NaN if a logit is not finite, or if an x or the distance of the least x from max overflows.
/// Preconditions: vocab >= 1, T > 0, chains a power of two up to kMaxChains.
struct SoftmaxStats {
  float max;
  float sum;
  float weighted;
};

struct RmsNormArgs {
  const float* x;       // [rows, ld]
  std::int64_t ld;      // of x and y
  const float* weight;  // [width]
  float eps;
  std::int64_t width;
  float* y;
  std::int64_t row_begin, row_end;
};

/// With r = 1 / sqrt(reduce16(x*x as fma lanes) / width + eps):  y = (x * r) * weight.
/// Backward, with g = dy * weight and t = reduce16 of g*x as fma lanes:
///   dx = dx + fma(g, r, -(x * ((((r * r) * r) * t) / width)))
struct RmsNormGradArgs {
  const float* x;
  const float* dy;
  std::int64_t ld;  // of x, dy, dx
  const float* weight;
  float eps;
  std::int64_t width;
  float* dx;           // += gradient
  float* inverse_rms;  // [rows] out: r, for weight_grad
  std::int64_t row_begin, row_end;
};

/// dweight[c] = chain over rows ascending of fma(dy[m,c] * r[m], x[m,c], dweight[c]) for columns [col_begin,
/// col_end).
struct RmsNormWeightGradArgs {
  const float* x;
  const float* dy;
  std::int64_t ld;
  const float* inverse_rms;
  std::int64_t rows;
  float* dweight;
  std::int64_t col_begin, col_end;
};

/// Rotates pairs (i, i + head_dim/2) of each of `heads` heads at x[row, h * head_dim …] in place:
/// x1' = fma(x1, c, -(x2 * s)); x2' = fma(x2, c, x1 * s), with (c, s) = table[position]. `inverse` uses -s:
/// the gradient.
struct RopeArgs {
  float* x;
  std::int64_t ld;
  std::int32_t heads;
  std::int32_t head_dim;
  const float* cos_table;  // [positions, head_dim / 2]
  const float* sin_table;
  const std::int32_t* positions;  // [rows]
  bool inverse;
  std::int64_t row_begin, row_end;
};

/// Rounds k and v rows ([rows, ld], kv_heads * head_dim wide) into the blocks of their sequence.
struct KvStoreArgs {
  const KvView* kv;
  SequenceSpan span;
  const float* k;
  const float* v;
  std::int64_t ld;
};

/// y = (gate * sigmoid(gate)) * up, all [rows, width].
/// Backward, with s = sigmoid(gate): dup = dy * (gate * s); dgate = (dy * up) * (s * fma(gate, 1 - s, 1)).
struct SwigluArgs {
  const float* gate;
  const float* up;
  std::int64_t ld_gate_up;  // of gate, up and their gradients
  float* y;                 // forward out, [rows, ldy]
  const float* dy;          // backward in
  float* dgate;             // backward out, may alias gate
  float* dup;               // backward out, may alias up
  std::int64_t ldy;
  std::int64_t width;
  std::int64_t row_begin, row_end;
};

/// Gradient of a * log p(target) + b * entropy, a = dloss/dlogprob, b = dloss/dentropy. With x = logits / T -
/// max, p = exp(x) / sum, L = log(sum), H = L - weighted / sum:
///   dlogits[v] = fma(-b, p * ((x - L) + H), a * ((v == target) - p)) / T
/// May alias logits.
struct SoftmaxGradArgs {
  const float* logits;
  std::int64_t vocab;
  float temperature;
  SoftmaxStats stats;
  std::int32_t target;  // -1: none, (v == target) is 0 everywhere
  float dlogprob;
  float dentropy;
  float* dlogits;
};

/// One AdamW update (Loshchilov & Hutter 2019) on a contiguous range. g = float(double(grad) * grad_scale) *
/// clip; then
///   m = fma(beta1, m, (1 - beta1) * g);  v = fma(beta2, v, (1 - beta2) * (g * g))
///   update = (m / bias1) / (sqrt(v / bias2) + eps)
///   master = fma(-lr, fma(weight_decay, master, update), master)
struct AdamWArgs {
  float* master;
  float* m;
  float* v;
  const std::int64_t* grad;
  std::int64_t count;
  double grad_scale;  // 2^-36 / normaliser
  float clip;
  float lr, beta1, beta2, eps, weight_decay;
  float bias1, bias2;  // 1 - beta^t
};

struct OpTable {
  const char* name;  // "avx512", "avx2", "portable"

  void (*matmul)(const MatmulArgs&);
  void (*transpose)(const TransposeArgs&);
  void (*weight_grad)(const WeightGradArgs&);
  /// Returns false, as fixed_point_add does, if something does not fit.
  bool (*weight_grad_sum)(const WeightGradSumArgs&);
  /// Returns false if a value is not finite after rounding (the rows are written all the same).
  bool (*pack_rows)(const PackArgs&);

  void (*attention)(const AttentionArgs&);
  void (*attention_grad)(const AttentionGradArgs&);
  void (*kv_store)(const KvStoreArgs&);

  void (*rms_norm)(const RmsNormArgs&);
  void (*rms_norm_grad)(const RmsNormGradArgs&);
  void (*rms_norm_weight_grad)(const RmsNormWeightGradArgs&);
  void (*rope)(const RopeArgs&);
  void (*swiglu)(const SwigluArgs&);
  void (*swiglu_grad)(const SwigluArgs&);
  /// y[i] = y[i] + x[i].
  void (*add)(float* y, const float* x, std::int64_t count);

  SoftmaxStats (*softmax_stats)(const float* logits, std::int64_t vocab, float temperature,
                                std::int32_t chains);
  void (*softmax_grad)(const SoftmaxGradArgs&);
  /// weights[v] = trunc(exp(x - max) * 2^40) as uint64, x = logits / T: the exact integers that sampling
  /// sums. The row's statistics must be finite, and max theirs.
  void (*sampling_weights)(const float* logits, std::int64_t vocab, float temperature, float max,
                           std::uint64_t* weights);

  /// sum[i] += round-to-nearest-even(x[i] * 2^36). Returns false (the sum is then void) if an x is NaN or at
  /// least 2^26 in magnitude, or a sum overflows.
  bool (*fixed_point_add)(std::int64_t* sum, const float* x, std::int64_t count);
  /// Sum over the range of (float(double(grad) * scale))^2 in fp64: 16 lanes of fma, fixed tree (one block of
  /// the gradient norm).
  double (*squared_norm)(const std::int64_t* grad, std::int64_t count, double scale);
  void (*adamw)(const AdamWArgs&);

  /// out[i] = exp(x[i]), log(x[i]), sigmoid(x[i]) of the contract: for tests and scalar callers.
  void (*exp)(const float* x, float* out, std::int64_t count);
  void (*log)(const float* x, float* out, std::int64_t count);
  void (*sigmoid)(const float* x, float* out, std::int64_t count);

  // Not operations: loops that machine_limits.h times.
  /// The exclusive or of the 64-bit words at `data`, 64-byte aligned; `bytes` is a multiple of 256.
  std::uint64_t (*read_all)(const std::byte* data, std::size_t bytes);
  /// Runs `rounds` rounds of independent multiply-adds in registers; adds their sum to *sink and returns the
  /// number of floating-point operations (a multiply-add is two).
  std::int64_t (*fma_burst)(std::int64_t rounds, float* sink);
};

/// Bytes of scratch that attention_grad needs for a unit of `rows` rows.
std::size_t attention_grad_scratch(std::int64_t rows, std::int32_t head_dim, std::int32_t group);

/// Targets that this machine can run, best first; "portable" is always the last.
std::span<const OpTable* const> available_targets();

/// The table named `name` ("auto": the best). kInvalidArgument names the valid ones, kUnsupported if this
/// machine cannot run it.
Result<const OpTable*> find_target(std::string_view name);

}  // namespace rondo::kernels
