#include "kernels/ops.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>

#include "base/check.h"

namespace rondo::kernels {
namespace {

// Rows and panels that a kernel treats as one piece; a share smaller than this would waste registers.
constexpr std::int64_t kRowGrain = 48;
constexpr std::int64_t kPanelGrain = 2;
// Query rows of one sequence that stay together.
constexpr std::int64_t kAttentionRowGrain = 16;
// Rows that one thread rotates and stores together.
constexpr std::int64_t kStoreGrain = 4;
// Elements per share of a flat range: whole cache lines.
constexpr std::int64_t kFlatGrain = 4096;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

struct Range {
  std::int64_t begin, end;
};

// Share `index` of `parts` of [0, count), cut at multiples of `grain`.
Range share(std::int64_t count, std::int64_t grain, std::int64_t index, std::int64_t parts) {
  const std::int64_t grains = ceil_div(count, grain);
  return {std::min(count, grains * index / parts * grain),
          std::min(count, grains * (index + 1) / parts * grain)};
}

// In how many parts to cut the rows, so that (rows / parts) * (panels / (threads / parts)) is smallest. Few
// parts of rows are better: every one of them reads the weights again.
std::int64_t row_parts(std::int64_t rows, std::int64_t panels, std::int64_t threads) {
  std::int64_t best = 1;
  std::int64_t best_work = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t parts = 1; parts <= threads; ++parts) {
    if (threads % parts != 0) continue;
    const std::int64_t work = std::min(rows, ceil_div(ceil_div(rows, kRowGrain), parts) * kRowGrain) *
                              ceil_div(ceil_div(panels, kPanelGrain), threads / parts);
    if (work < best_work) {
      best = parts;
      best_work = work;
    }
  }
  return best;
}

void check_segments(std::span<const KSegment> segments, std::int64_t cols) {
  int chains = 0;
  for (const KSegment& segment : segments) {
    RONDO_CHECK(0 <= segment.begin && segment.begin <= segment.end && segment.end <= cols);
    RONDO_CHECK(0 <= segment.chain && segment.chain < kMaxChains);
    chains = std::max(chains, segment.chain + 1);
  }
  RONDO_CHECK_EQ(chains & (chains - 1), 0);
}

// Divides args' rows [row_begin, row_end) over the threads and calls `op` on each share.
template <class Args>
void over_rows(const Context& ctx, const Args& args, void (*op)(const Args&), std::int64_t grain = 1) {
  ctx.pool->parallel_for(args.row_end - args.row_begin, grain, [&](std::int64_t begin, std::int64_t end) {
    Args part = args;
    part.row_begin = args.row_begin + begin;
    part.row_end = args.row_begin + end;
    op(part);
  });
}

// Pairs of (row, visible position) in rows [0, rows) of a span.
std::int64_t attention_work(const SequenceSpan& span, std::int64_t rows) {
  return rows * span.first_position + rows * (rows + 1) / 2;
}

SequenceSpan sub_span(const SequenceSpan& span, std::int64_t begin, std::int64_t end) {
  SequenceSpan part = span;
  part.first_position += static_cast<std::int32_t>(begin);
  part.first_row += static_cast<std::int32_t>(begin);
  part.rows = static_cast<std::int32_t>(end - begin);
  return part;
}

// A place in the rows of a list of spans, taken one after the other.
struct SpanPlace {
  std::size_t span;
  std::int64_t row;  // 0, or inside the span
};

// The first place, at a multiple of the grain in its span, before which at least `work` pairs lie.
SpanPlace place_at_work(std::span<const SequenceSpan> spans, std::int64_t work) {
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (work <= 0) return {i, 0};
    std::int64_t row = 0;
    while (row < spans[i].rows && attention_work(spans[i], row) < work) row += kAttentionRowGrain;
    if (row < spans[i].rows) return {i, row};
    work -= attention_work(spans[i], spans[i].rows);
  }
  return {spans.size(), 0};
}

// Calls the kernel on the rows in [begin, end). Whole spans go in one call, so that the kernel sees which of
// them share blocks.
void attention_between(const OpTable& table, const AttentionArgs& args, SpanPlace begin, SpanPlace end) {
  AttentionArgs part = args;
  const auto call_on_rows = [&](std::size_t span, std::int64_t first, std::int64_t last) {
    const SequenceSpan rows = sub_span(args.spans[span], first, last);
    part.spans = {&rows, 1};
    table.attention(part);
  };
  if (begin.row > 0) {
    const bool ends_here = begin.span == end.span;
    const std::int64_t last = ends_here ? end.row : args.spans[begin.span].rows;
    if (begin.row < last) call_on_rows(begin.span, begin.row, last);
    if (ends_here) return;
    begin = {begin.span + 1, 0};
  }
  if (begin.span < end.span) {
    part.spans = args.spans.subspan(begin.span, end.span - begin.span);
    table.attention(part);
  }
  if (end.row > 0) call_on_rows(end.span, 0, end.row);
}

// Calls body(rows, panels) for each thread's share of a product.
template <class Body>
void over_product(const Context& ctx, std::int64_t rows, std::int64_t panels, const Body& body) {
  const std::int64_t threads = ctx.pool->num_threads();
  const std::int64_t parts = row_parts(rows, panels, threads);
  ctx.pool->run([&](int index) {
    const Range row = share(rows, kRowGrain, index % parts, parts);
    const Range panel = share(panels, kPanelGrain, index / parts, threads / parts);
    if (row.begin < row.end && panel.begin < panel.end) body(row, panel);
  });
}

// Stores what rows [first, last) of the batch are in the spans.
void store_between(const OpTable& table, const KvStoreArgs& args, std::span<const SequenceSpan> spans,
                   std::int64_t first, std::int64_t last) {
  KvStoreArgs part = args;
  for (const SequenceSpan& span : spans) {
    const std::int64_t begin = std::clamp<std::int64_t>(first - span.first_row, 0, span.rows);
    const std::int64_t end = std::clamp<std::int64_t>(last - span.first_row, 0, span.rows);
    if (begin == end) continue;
    part.span = sub_span(span, begin, end);
    table.kv_store(part);
  }
}

std::size_t grad_scratch_per_thread(std::int64_t rows, const KvView& kv, std::int32_t heads) {
  const std::size_t bytes = attention_grad_scratch(rows, kv.head_dim, heads / kv.kv_heads);
  return (bytes + 63) / 64 * 64;
}

}  // namespace

void matmul(const Context& ctx, const PackedMatrix& w, const float* x, std::int64_t ldx, std::int64_t rows,
            float* y, std::int64_t ldy, const float* residual, std::span<const KSegment> segments) {
  check_segments(segments, w.cols());
  over_product(ctx, rows, w.panels(), [&](Range row, Range panel) {
    ctx.table->matmul({.w = &w,
                       .x = x,
                       .ldx = ldx,
                       .y = y,
                       .ldy = ldy,
                       .residual = residual,
                       .row_begin = row.begin,
                       .row_end = row.end,
                       .panel_begin = panel.begin,
                       .panel_end = panel.end,
                       .segments = segments});
  });
}

void matmul_swiglu(const Context& ctx, const PackedMatrix& w, const float* x, std::int64_t ldx,
                   std::int64_t rows, float* gate_up, float* y) {
  const std::int64_t width = w.rows() / 2;
  SwigluArgs activation = {};
  activation.gate = gate_up;
  activation.up = gate_up + width;
  activation.ld_gate_up = w.rows();
  activation.y = y;
  activation.ldy = activation.width = width;
  activation.row_end = rows;
  if (width % kPanel != 0) {  // gate and up share a panel
    matmul(ctx, w, x, ldx, rows, gate_up, w.rows());
    return swiglu(ctx, activation);
  }
  const std::int64_t half = width / kPanel;
  over_product(ctx, rows, half, [&](Range row, Range panel) {
    MatmulArgs product = {};
    product.w = &w;
    product.x = x;
    product.ldx = ldx;
    product.y = gate_up;
    product.ldy = w.rows();
    product.row_begin = row.begin;
    product.row_end = row.end;
    for (const std::int64_t first : {std::int64_t{0}, half}) {
      product.panel_begin = first + panel.begin;
      product.panel_end = first + panel.end;
      ctx.table->matmul(product);
    }
    SwigluArgs part = activation;
    part.gate += panel.begin * kPanel;
    part.up += panel.begin * kPanel;
    part.y += panel.begin * kPanel;
    part.width = (panel.end - panel.begin) * kPanel;
    part.row_begin = row.begin;
    part.row_end = row.end;
    ctx.table->swiglu(part);
  });
}

void matmul_input_grad(const Context& ctx, const PackedMatrix& w, const float* dy, std::int64_t lddy,
                       std::int64_t rows, float* dx, std::int64_t lddx, PackedMatrix& transposed,
                       InputGradOptions options) {
  if (transposed.rows() != w.cols() || transposed.cols() != w.rows() || transposed.dtype() != w.dtype())
    transposed = PackedMatrix(w.dtype(), w.cols(), w.rows());
  transpose(ctx, w, transposed);
  matmul(ctx, transposed, dy, lddy, rows, dx, lddx, options.accumulate ? dx : nullptr, options.segments);
}

void transpose(const Context& ctx, const PackedMatrix& w, PackedMatrix& out) {
  RONDO_CHECK_EQ(out.rows(), w.cols());
  RONDO_CHECK_EQ(out.cols(), w.rows());
  RONDO_CHECK(out.dtype() == w.dtype() || out.dtype() == DType::kF32);
  ctx.pool->parallel_for(out.panels(), 1, [&](std::int64_t begin, std::int64_t end) {
    ctx.table->transpose({.w = &w, .out = &out, .panel_begin = begin, .panel_end = end});
  });
}

void weight_grad(const Context& ctx, const WeightGradArgs& args) {
  ctx.pool->parallel_for(args.r_end - args.r_begin, kPanel, [&](std::int64_t begin, std::int64_t end) {
    WeightGradArgs part = args;
    part.r_begin = args.r_begin + begin;
    part.r_end = args.r_begin + end;
    ctx.table->weight_grad(part);
  });
}

bool weight_grad_sum(const Context& ctx, const WeightGradSumArgs& args) {
  std::atomic<bool> ok{true};
  ctx.pool->parallel_for(args.r_end - args.r_begin, kPanel, [&](std::int64_t begin, std::int64_t end) {
    WeightGradSumArgs part = args;
    part.r_begin = args.r_begin + begin;
    part.r_end = args.r_begin + end;
    if (!ctx.table->weight_grad_sum(part)) ok = false;
  });
  return ok;
}

void attention(const Context& ctx, const AttentionArgs& args) {
  std::int64_t per_head = 0;
  for (const SequenceSpan& span : args.spans) per_head += attention_work(span, span.rows);
  const std::int64_t threads = ctx.pool->num_threads();
  const std::int64_t total = per_head * args.kv->kv_heads;
  ctx.pool->run([&](int index) {
    // The work is laid out head by head, span by span, row by row; this thread does [first, last) of it.
    const std::int64_t first = total * index / threads;
    const std::int64_t last = total * (index + 1) / threads;
    AttentionArgs part = args;
    for (part.kv_head = 0; part.kv_head < args.kv->kv_heads; ++part.kv_head) {
      const std::int64_t before = per_head * part.kv_head;
      if (last <= before || first >= before + per_head) continue;
      attention_between(*ctx.table, part, place_at_work(args.spans, first - before),
                        place_at_work(args.spans, last - before));
    }
  });
}

std::size_t attention_grad_scratch(const Context& ctx, std::int64_t rows, const KvView& kv,
                                   std::int32_t heads) {
  return grad_scratch_per_thread(rows, kv, heads) * static_cast<std::size_t>(ctx.pool->num_threads());
}

void attention_grad(const Context& ctx, const AttentionGradArgs& args) {
  const std::size_t bytes = grad_scratch_per_thread(args.rows, *args.kv, args.heads);
  RONDO_CHECK_GE(args.scratch.size(), bytes * static_cast<std::size_t>(ctx.pool->num_threads()));
  ctx.pool->run([&](int index) {
    AttentionGradArgs part = args;
    part.scratch = args.scratch.subspan(bytes * static_cast<std::size_t>(index), bytes);
    const Range heads = share(args.kv->kv_heads, 1, index, ctx.pool->num_threads());
    for (std::int64_t head = heads.begin; head < heads.end; ++head) {
      part.kv_head = static_cast<std::int32_t>(head);
      ctx.table->attention_grad(part);
    }
  });
}

void kv_store(const Context& ctx, const KvStoreArgs& args, std::span<const SequenceSpan> spans) {
  if (spans.empty()) return;
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  std::int64_t last = 0;
  for (const SequenceSpan& span : spans) {
    first = std::min<std::int64_t>(first, span.first_row);
    last = std::max<std::int64_t>(last, span.first_row + span.rows);
  }
  ctx.pool->parallel_for(last - first, kStoreGrain, [&](std::int64_t begin, std::int64_t end) {
    store_between(*ctx.table, args, spans, first + begin, first + end);
  });
}

void rope_and_store(const Context& ctx, const RopeArgs& rope, const KvStoreArgs& args,
                    std::span<const SequenceSpan> spans) {
  ctx.pool->parallel_for(rope.row_end - rope.row_begin, kStoreGrain,
                         [&](std::int64_t begin, std::int64_t end) {
                           RopeArgs part = rope;
                           part.row_begin = rope.row_begin + begin;
                           part.row_end = rope.row_begin + end;
                           ctx.table->rope(part);
                           store_between(*ctx.table, args, spans, part.row_begin, part.row_end);
                         });
}

void rms_norm(const Context& ctx, const RmsNormArgs& args) {
  over_rows(ctx, args, ctx.table->rms_norm);
}
void rms_norm_grad(const Context& ctx, const RmsNormGradArgs& args) {
  over_rows(ctx, args, ctx.table->rms_norm_grad);
}
void rope(const Context& ctx, const RopeArgs& args) {
  over_rows(ctx, args, ctx.table->rope);
}
void swiglu(const Context& ctx, const SwigluArgs& args) {
  over_rows(ctx, args, ctx.table->swiglu);
}
void swiglu_grad(const Context& ctx, const SwigluArgs& args) {
  over_rows(ctx, args, ctx.table->swiglu_grad);
}

void rms_norm_weight_grad(const Context& ctx, const RmsNormWeightGradArgs& args) {
  ctx.pool->parallel_for(args.col_end - args.col_begin, kPanel, [&](std::int64_t begin, std::int64_t end) {
    RmsNormWeightGradArgs part = args;
    part.col_begin = args.col_begin + begin;
    part.col_end = args.col_begin + end;
    ctx.table->rms_norm_weight_grad(part);
  });
}

void add(const Context& ctx, float* y, const float* x, std::int64_t count) {
  ctx.pool->parallel_for(count, kFlatGrain, [&](std::int64_t begin, std::int64_t end) {
    ctx.table->add(y + begin, x + begin, end - begin);
  });
}

void softmax_stats(const Context& ctx, std::span<const SoftmaxRow> rows, std::int64_t vocab,
                   std::int32_t chains, std::span<SoftmaxStats> stats) {
  RONDO_CHECK_EQ(rows.size(), stats.size());
  ctx.pool->parallel_for(std::ssize(rows), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      stats[i] = ctx.table->softmax_stats(rows[i].logits, vocab, rows[i].temperature, chains);
  });
}

void softmax_grad(const Context& ctx, std::span<const SoftmaxGradArgs> rows) {
  ctx.pool->parallel_for(std::ssize(rows), 1, [&](std::int64_t begin, std::int64_t end) {
    for (const SoftmaxGradArgs& row :
         rows.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)))
      ctx.table->softmax_grad(row);
  });
}

bool fixed_point_add(const Context& ctx, std::int64_t* sum, const float* x, std::int64_t count) {
  std::atomic<bool> fits = true;
  ctx.pool->parallel_for(count, kFlatGrain, [&](std::int64_t begin, std::int64_t end) {
    if (!ctx.table->fixed_point_add(sum + begin, x + begin, end - begin))
      fits.store(false, std::memory_order_relaxed);
  });
  return fits.load(std::memory_order_relaxed);
}

void squared_norms(const Context& ctx, const std::int64_t* grad, std::int64_t count, double scale,
                   std::span<double> blocks) {
  RONDO_CHECK_EQ(std::ssize(blocks), ceil_div(count, kNormBlock));
  ctx.pool->parallel_for(std::ssize(blocks), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      blocks[static_cast<std::size_t>(i)] =
          ctx.table->squared_norm(grad + i * kNormBlock, std::min(kNormBlock, count - i * kNormBlock), scale);
  });
}

void adamw(const Context& ctx, const AdamWArgs& args) {
  ctx.pool->parallel_for(args.count, kFlatGrain, [&](std::int64_t begin, std::int64_t end) {
    AdamWArgs part = args;
    part.master += begin;
    part.m += begin;
    part.v += begin;
    part.grad += begin;
    part.count = end - begin;
    ctx.table->adamw(part);
  });
}

}  // namespace rondo::kernels
