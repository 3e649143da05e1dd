// Backward of paged causal attention. Queries (a row of a query head) are gathered once; then block by block
// of positions, span by span, 48 queries at a time, the probabilities are recomputed and the five products
// done in register tiles. That order visits every chain of op_table.h in its own order: positions ascend for
// dq, queries for dk and dv.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_grad.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway demands.
#include <hwy/highway.h>

#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/register.h"
#include "kernels/cpu/tile-inl.h"

#ifndef RONDO_KERNELS_CPU_ATTENTION_GRAD_ONCE
#define RONDO_KERNELS_CPU_ATTENTION_GRAD_ONCE
namespace rondo::kernels {

inline constexpr int kGradTileQueries = 48;

// Hands out 64-byte aligned stretches of scratch; with no memory it only counts.
class GradScratch final {
 public:
  explicit GradScratch(float* data) : data_(data) {}

  float* take(std::int64_t floats) {
    float* result = data_ == nullptr ? nullptr : data_ + used_;
    used_ += (floats + kPanel - 1) / kPanel * kPanel;
    return result;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(used_) * sizeof(float); }

 private:
  float* data_;
  std::int64_t used_ = 0;
};

// Widths are head_dim rounded up to whole panels, the excess zero. Query i is head i % group of row i /
// group.
struct GradBuffers {
  GradBuffers(GradScratch& scratch, std::int64_t queries, std::int32_t width)
      : q(scratch.take(queries * width)),
        dout(scratch.take(queries * width)),
        dq(scratch.take(queries * width)),
        max(scratch.take(queries)),
        sum(scratch.take(queries)),
        correlation(scratch.take(queries)),
        k(scratch.take(std::int64_t{kAttentionBlock} * width)),
        k_rows(scratch.take(std::int64_t{kAttentionBlock} * width)),
        v(scratch.take(std::int64_t{kAttentionBlock} * width)),
        dk(scratch.take(std::int64_t{kAttentionBlock} * width)),
        dv(scratch.take(std::int64_t{kAttentionBlock} * width)),
        p(scratch.take(std::int64_t{kGradTileQueries} * kAttentionBlock)),
        ds(scratch.take(std::int64_t{kGradTileQueries} * kAttentionBlock)) {}

  float* q;            // [queries, width]
  float* dout;         // [queries, width]
  float* dq;           // [queries, width]
  float* max;          // [queries]
  float* sum;          // [queries]
  float* correlation;  // [queries], D
  // The present block in fp32.
  float* k;       // [head_dim, 64]
  float* k_rows;  // [64, width]
  float* v;       // [head_dim, 64]
  float* dk;      // [64, width]
  float* dv;      // [64, width]
  // The present queries.
  float* p;   // [48, 64]
  float* ds;  // [48, 64]
};

}  // namespace rondo::kernels
#endif  // RONDO_KERNELS_CPU_ATTENTION_GRAD_ONCE

HWY_BEFORE_NAMESPACE();
namespace rondo::kernels::HWY_NAMESPACE {
namespace {

// What stays the same throughout one call.
struct Job {
  const AttentionGradArgs& args;
  GradBuffers buffers;
  std::int32_t group;
  std::int32_t head_dim;
  std::int32_t width;
};

void copy_padded(const float* in, int count, int width, float* out) {
  std::copy_n(in, count, out);
  std::fill(out + count, out + width, 0.0F);
}

void gather_queries(const Job& job) {
  const AttentionGradArgs& args = job.args;
  alignas(64) float out[kMaxHeadDim];
  for (std::int64_t i = 0; i < args.rows * job.group; ++i) {
    const std::int64_t row = i / job.group;
    const std::int64_t head = args.kv_head * job.group + i % job.group;
    const std::int64_t column = head * job.head_dim;
    float* dout = job.buffers.dout + i * job.width;
    copy_padded(args.q + row * args.ldq + column, job.head_dim, job.width, job.buffers.q + i * job.width);
    copy_padded(args.dout + row * args.ldo + column, job.head_dim, job.width, dout);
    copy_padded(args.out + row * args.ldo + column, job.head_dim, job.width, out);
    job.buffers.correlation[i] = reduce16(job.width, [&](std::int64_t c, auto io, VF sum) {
      return fma(io.load(dout + c), io.load(out + c), sum);
    });
    job.buffers.max[i] = args.stats[(row * args.heads + head) * 2];
    job.buffers.sum[i] = args.stats[(row * args.heads + head) * 2 + 1];
  }
  std::fill_n(job.buffers.dq, args.rows * job.group * job.width, 0.0F);
}

template <class Stored>
void load_block(const Job& job, std::int32_t block) {
  using Raw = typename Stored::Raw;
  const GradBuffers& to = job.buffers;
  const auto* keys = reinterpret_cast<const Raw*>(job.args.kv->keys(block, job.args.kv_head));
  const auto* values = reinterpret_cast<const Raw*>(job.args.kv->values(block, job.args.kv_head));
  widen<Stored>(keys, job.head_dim, kAttentionBlock, nullptr, to.k);
  for (int p = 0; p < kAttentionBlock; ++p) {
    for (int c = 0; c < job.head_dim; ++c) {
      to.k_rows[p * job.width + c] = to.k[c * kAttentionBlock + p];
      to.v[c * kAttentionBlock + p] = Stored::load_one(values + p * job.head_dim + c);
    }
    std::fill_n(to.k_rows + p * job.width + job.head_dim, job.width - job.head_dim, 0.0F);
  }
}

// From scores and dp to p and ds for one query, in slots [0, seen); what it does not see itself gets zeros.
HWY_INLINE void softmax_grad(const Job& job, std::int64_t query, int visible, int seen, float* p, float* ds) {
  const F32 d;
  const VF max = hn::Set(d, job.buffers.max[query]);
  const VF sum = hn::Set(d, job.buffers.sum[query]);
  const VF correlation = hn::Set(d, job.buffers.correlation[query]);
  const VF scale = hn::Set(d, job.args.scale);
  for (int i = 0; i < seen; i += kLanes) {
    const VF weight = hn::Div(exp(hn::Sub(hn::LoadU(d, p + i), max)), sum);
    const VF centred = hn::Sub(hn::LoadU(d, ds + i), correlation);
    hn::StoreU(weight, d, p + i);
    hn::StoreU(hn::Mul(hn::Mul(weight, centred), scale), d, ds + i);
  }
  if (visible >= seen) return;
  std::fill(p + visible, p + seen, 0.0F);
  std::fill(ds + visible, ds + seen, 0.0F);
}

// Queries [first, first + count) of `span` against the loaded block.
void add_queries(const Job& job, const SequenceSpan& span, int block, std::int64_t first, int count) {
  const GradBuffers& b = job.buffers;
  const int width = job.width;
  const auto visible = [&](std::int64_t query) {
    const auto row = static_cast<std::int32_t>(query / job.group) - span.first_row;
    return span.first_position + row - block * kAttentionBlock + 1;
  };
  const int seen = std::min(kAttentionBlock, visible(first + count - 1));
  const float* q = b.q + first * width;
  const float* dout = b.dout + first * width;
  multiply(LeftFactor{q, width, 1}, RightFactor<StoredF32>{b.k, kAttentionBlock}, count, round_up(seen),
           job.head_dim, StoreScaled{b.p, kAttentionBlock, job.args.scale});
  multiply(LeftFactor{dout, width, 1}, RightFactor<StoredF32>{b.v, kAttentionBlock}, count, round_up(seen),
           job.head_dim, Store{b.ds, kAttentionBlock});
  for (int i = 0; i < count; ++i) {
    softmax_grad(job, first + i, visible(first + i), seen, b.p + i * kAttentionBlock,
                 b.ds + i * kAttentionBlock);
  }
  multiply(LeftFactor{b.ds, kAttentionBlock, 1}, RightFactor<StoredF32>{b.k_rows, width}, count, width, seen,
           Continue{b.dq + first * width, width});
  multiply(LeftFactor{b.ds, 1, kAttentionBlock}, RightFactor<StoredF32>{q, width}, seen, width, count,
           Continue{b.dk, width});
  multiply(LeftFactor{b.p, 1, kAttentionBlock}, RightFactor<StoredF32>{dout, width}, seen, width, count,
           Continue{b.dv, width});
}

// All queries of span `index` against the loaded block.
void add_span(const Job& job, std::size_t index, int block) {
  const AttentionGradArgs& args = job.args;
  const SequenceSpan& span = args.spans[index];
  const std::int32_t begin = block * kAttentionBlock;
  const int positions = std::min(kAttentionBlock, span.first_position + span.rows - begin);
  const std::int32_t* rows = args.position_rows + args.span_position_begin[index] + begin;
  const std::int64_t column = static_cast<std::int64_t>(args.kv_head) * job.head_dim;
  for (int p = 0; p < positions; ++p) {
    const std::int64_t at = rows[p] * args.lddkv + column;
    copy_padded(args.dk + at, job.head_dim, job.width, job.buffers.dk + p * job.width);
    copy_padded(args.dv + at, job.head_dim, job.width, job.buffers.dv + p * job.width);
  }
  const std::int64_t unseeing = std::max(0, begin - span.first_position);
  const std::int64_t end = (static_cast<std::int64_t>(span.first_row) + span.rows) * job.group;
  for (std::int64_t query = (span.first_row + unseeing) * job.group; query < end; query += kGradTileQueries) {
    const int count = static_cast<int>(std::min<std::int64_t>(kGradTileQueries, end - query));
    add_queries(job, span, block, query, count);
  }
  for (int p = 0; p < positions; ++p) {
    const std::int64_t at = rows[p] * args.lddkv + column;
    for (int c = 0; c < job.head_dim; ++c) {
      args.dk[at + c] = job.buffers.dk[p * job.width + c] + 0.0F;
      args.dv[at + c] = job.buffers.dv[p * job.width + c] + 0.0F;
    }
  }
}

template <class Stored>
void add_block(const Job& job, int block) {
  std::int32_t loaded = -1;
  for (std::size_t i = 0; i < job.args.spans.size(); ++i) {
    const SequenceSpan& span = job.args.spans[i];
    if (span.first_position + span.rows <= block * kAttentionBlock) continue;
    if (span.block_table[block] != loaded) {
      loaded = span.block_table[block];
      load_block<Stored>(job, loaded);
    }
    add_span(job, i, block);
  }
}

void clear_key_gradients(const Job& job) {
  const AttentionGradArgs& args = job.args;
  for (std::int64_t row = 0; row < args.rows; ++row) {
    const std::int64_t at = row * args.lddkv + static_cast<std::int64_t>(args.kv_head) * job.head_dim;
    std::fill_n(args.dk + at, job.head_dim, 0.0F);
    std::fill_n(args.dv + at, job.head_dim, 0.0F);
  }
}

void write_query_gradients(const Job& job) {
  const AttentionGradArgs& args = job.args;
  for (std::int64_t i = 0; i < args.rows * job.group; ++i) {
    const std::int64_t head = args.kv_head * job.group + i % job.group;
    float* dq = args.dq + i / job.group * args.lddq + head * job.head_dim;
    for (int c = 0; c < job.head_dim; ++c) dq[c] = job.buffers.dq[i * job.width + c] + 0.0F;
  }
}

void attention_grad(const AttentionGradArgs& args) {
  const std::int32_t group = args.heads / args.kv->kv_heads;
  const std::int32_t width = round_up(args.kv->head_dim);
  GradScratch scratch(reinterpret_cast<float*>(args.scratch.data()));
  const Job job = {.args = args,
                   .buffers = GradBuffers(scratch, args.rows * group, width),
                   .group = group,
                   .head_dim = args.kv->head_dim,
                   .width = width};
  RONDO_CHECK_GE(args.scratch.size(), scratch.bytes());
  gather_queries(job);
  clear_key_gradients(job);
  std::int32_t end = 0;
  for (const SequenceSpan& span : args.spans) end = std::max(end, span.first_position + span.rows);
  with_storage(args.kv->dtype, [&](auto stored) {
    for (int block = 0; block * kAttentionBlock < end; ++block) add_block<decltype(stored)>(job, block);
  });
  write_query_gradients(job);
}

}  // namespace

void fill_attention_grad_target(OpTable& table) {
  table.attention_grad = attention_grad;
}

}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::kernels {

HWY_EXPORT(fill_attention_grad_target);

void cpu::fill_attention_grad(OpTable& table) {
  HWY_DYNAMIC_DISPATCH(fill_attention_grad_target)(table);
}

std::size_t attention_grad_scratch(std::int64_t rows, std::int32_t head_dim, std::int32_t group) {
  GradScratch counted(nullptr);
  const GradBuffers buffers(counted, rows * group, (head_dim + kPanel - 1) / kPanel * kPanel);
  static_cast<void>(buffers);
  return counted.bytes();
}

}  // namespace rondo::kernels
#endif  // HWY_ONCE
