// Paged causal attention and the store into its blocks. Rows of query heads that share a KV head are taken 48
// at a time, whatever spans they come from; where neighbours have the same block it is read once for all.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway demands.
#include <hwy/highway.h>

#include <algorithm>
#include <limits>
#include <span>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/register.h"
#include "kernels/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::kernels::HWY_NAMESPACE {
namespace {

constexpr int kTileQueries = 48;
static_assert(kTileQueries % kReduceLanes == 0);

// One row of one query head.
struct Query {
  const std::int32_t* blocks;
  std::int32_t position;
  std::int64_t row;
  std::int32_t head;

  // Slots of `block` that the query sees, if the block had no end: none if 0 or less.
  int visible(int block) const { return position - block * kAttentionBlock + 1; }
};

// Neighbours [begin, end) of a tile that see a block and hold it under one id. They see its slots [0, seen).
struct Run {
  std::int32_t id;
  int begin, end;
  int seen;
};

// Queries in the order of their rows, and their running result. Widths are rounded up to whole panels; the
// columns in excess of head_dim are zero.
struct Tile {
  int count = 0;
  Query queries[kTileQueries];
  int run_count = 0;  // of the present block
  Run runs[kTileQueries];
  alignas(64) float q[kTileQueries * kMaxHeadDim];
  alignas(64) float out[kTileQueries * kMaxHeadDim];
  alignas(64) float scores[kTileQueries * kAttentionBlock];
  alignas(64) float wide[kMaxHeadDim * kAttentionBlock];  // keys or values of one block in fp32
  // Of the blocks so far, and of the present one.
  alignas(64) float max[kTileQueries], sum[kTileQueries];
  alignas(64) float block_max[kTileQueries], block_sum[kTileQueries];
  alignas(64) float keep[kTileQueries], take[kTileQueries];
};

void find_runs(int block, Tile& tile) {
  tile.run_count = 0;
  for (int i = 0; i < tile.count; ++i) {
    const Query& query = tile.queries[i];
    const int visible = std::min(query.visible(block), kAttentionBlock);
    if (visible <= 0) continue;
    const std::int32_t id = query.blocks[block];
    Run* last = tile.run_count == 0 ? nullptr : &tile.runs[tile.run_count - 1];
    if (last == nullptr || last->end < i || last->id != id)
      tile.runs[tile.run_count++] = {id, i, i + 1, visible};
    else
      *last = {id, last->begin, i + 1, std::max(last->seen, visible)};
  }
}

// A product's extent, and the columns of the stored right factor, of which it takes the first round_up(…).
struct Extent {
  int rows;
  int cols;
  int stored_cols;
  int depth;
};

// multiply() with a stored right factor: widened first where several register tiles will read it, or where
// its rows need padding. `meanwhile` as in RightFactor.
template <class Stored, class Out>
void multiply_stored(LeftFactor a, const std::byte* stored, const std::byte* meanwhile, const Extent& extent,
                     float* wide, Out out) {
  const auto* data = reinterpret_cast<const typename Stored::Raw*>(stored);
  const bool padded = extent.stored_cols % kPanel != 0;
  if (padded || (Stored::kDType != DType::kF32 && extent.rows > kTileRows)) {
    widen<Stored>(data, extent.depth, extent.stored_cols, meanwhile, wide);
    multiply(a, RightFactor<StoredF32>{wide, round_up(extent.stored_cols)}, extent.rows, extent.cols,
             extent.depth, out);
  } else {
    multiply(a, RightFactor<Stored>{data, extent.stored_cols, meanwhile}, extent.rows, extent.cols,
             extent.depth, out);
  }
}

// Columns of `scores` that hold something: what a query sees, in whole panels.
HWY_INLINE int seen_columns(int visible) {
  return std::min(round_up(visible), kAttentionBlock);
}

HWY_INLINE float largest(const float* scores, int seen) {
  const F32 d;
  VF top = hn::Load(d, scores);
  for (int p = kLanes; p < seen; p += kLanes) top = hn::Max(top, hn::Load(d, scores + p));
  return hn::GetLane(hn::MaxOfLanes(d, top)) + 0.0F;
}

HWY_INLINE void exps(float* scores, int seen, float max) {
  const F32 d;
  const VF m = hn::Set(d, max);
  for (int p = 0; p < seen; p += kLanes) hn::Store(exp(hn::Sub(hn::Load(d, scores + p), m)), d, scores + p);
}

HWY_INLINE float sum_of(const float* exps, int seen) {
  Lanes16 total;
  for (int p = 0; p < seen; p += kPanel)
    for (int j = 0; j < kPanelVectors; ++j)
      total.v[j] = hn::Add(total.v[j], hn::Load(F32(), exps + p + j * kLanes));
  return total.combine();
}

// Turns the scores of queries [begin, end) into exps, in place, with their maxima and sums. What a query does
// not see becomes 0; whole panels of that need no exps, for a sum of lanes that are not negative does not
// change by zeros. Step by step for all queries: what one step does for a query waits for little, so that the
// processor works on several.
void block_softmax(int block, int begin, int end, Tile& tile) {
  for (int i = begin; i < end; ++i) {
    const int visible = tile.queries[i].visible(block);
    float* scores = tile.scores + i * kAttentionBlock;
    for (int p = visible; p < seen_columns(visible); ++p) scores[p] = -std::numeric_limits<float>::infinity();
    tile.block_max[i] = largest(scores, seen_columns(visible));
  }
  for (int i = begin; i < end; ++i) {
    const int seen = seen_columns(tile.queries[i].visible(block));
    float* scores = tile.scores + i * kAttentionBlock;
    exps(scores, seen, tile.block_max[i]);
    std::fill(scores + seen, scores + kAttentionBlock, 0.0F);
  }
  for (int i = begin; i < end; ++i)
    tile.block_sum[i] =
        sum_of(tile.scores + i * kAttentionBlock, seen_columns(tile.queries[i].visible(block)));
}

// Weights of the results so far and of the present block, and the new running maximum and sum. A query that
// does not see the block has block_max -infinity and block_sum 0, which change nothing.
void combine(Tile& tile, bool first) {
  const F32 d;
  for (int i = 0; i < tile.count; i += kLanes) {
    const VF block_max = hn::Load(d, tile.block_max + i);
    const VF block_sum = hn::Load(d, tile.block_sum + i);
    const VF old_max = first ? block_max : hn::Load(d, tile.max + i);
    const VF max = hn::Max(old_max, block_max);
    const VF keep = first ? hn::Zero(d) : exp(hn::Sub(old_max, max));
    const VF take = first ? hn::Set(d, 1.0F) : exp(hn::Sub(block_max, max));
    const VF old_sum = first ? hn::Zero(d) : hn::Load(d, tile.sum + i);
    hn::Store(max, d, tile.max + i);
    hn::Store(fma(old_sum, keep, hn::Mul(block_sum, take)), d, tile.sum + i);
    hn::Store(keep, d, tile.keep + i);
    hn::Store(take, d, tile.take + i);
  }
}

// All runs' keys are read, then all runs' values: while the keys of one are, its values are fetched.
template <class Stored>
void weigh_block(const AttentionArgs& args, int block, Tile& tile) {
  const int head_dim = args.kv->head_dim;
  const int width = round_up(head_dim);
  for (const Run& run : std::span(tile.runs, static_cast<std::size_t>(tile.run_count))) {
    const StoreScaled out = {tile.scores + run.begin * kAttentionBlock, kAttentionBlock, args.scale};
    multiply_stored<Stored>({tile.q + run.begin * width, width, 1}, args.kv->keys(run.id, args.kv_head),
                            args.kv->values(run.id, args.kv_head),
                            {.rows = run.end - run.begin,
                             .cols = round_up(run.seen),
                             .stored_cols = kAttentionBlock,
                             .depth = head_dim},
                            tile.wide, out);
    block_softmax(block, run.begin, run.end, tile);
  }
}

// While the values of a run are read, the keys of its next block are fetched.
template <class Stored>
void sum_block(const AttentionArgs& args, int block, Tile& tile) {
  const int head_dim = args.kv->head_dim;
  const int width = round_up(head_dim);
  for (const Run& run : std::span(tile.runs, static_cast<std::size_t>(tile.run_count))) {
    const Query& last = tile.queries[run.end - 1];
    const bool goes_on = last.visible(block + 1) > 0;
    const Combine out = {tile.out + run.begin * width, width, tile.keep + run.begin, tile.take + run.begin};
    multiply_stored<Stored>(
        {tile.scores + run.begin * kAttentionBlock, kAttentionBlock, 1},
        args.kv->values(run.id, args.kv_head),
        goes_on ? args.kv->keys(last.blocks[block + 1], args.kv_head) : nullptr,
        {.rows = run.end - run.begin, .cols = width, .stored_cols = head_dim, .depth = run.seen}, tile.wide,
        out);
  }
}

template <class Stored>
void add_block(const AttentionArgs& args, int block, Tile& tile) {
  std::fill_n(tile.block_max, kTileQueries, -std::numeric_limits<float>::infinity());
  std::fill_n(tile.block_sum, kTileQueries, 0.0F);
  find_runs(block, tile);
  weigh_block<Stored>(args, block, tile);
  combine(tile, block == 0);
  sum_block<Stored>(args, block, tile);
}

void write_results(const AttentionArgs& args, const Tile& tile) {
  const int head_dim = args.kv->head_dim;
  const int width = round_up(head_dim);
  for (int i = 0; i < tile.count; ++i) {
    const Query& query = tile.queries[i];
    float* out = args.out + query.row * args.ldo + static_cast<std::int64_t>(query.head) * head_dim;
    for (int c = 0; c < head_dim; ++c) out[c] = tile.out[i * width + c] / tile.sum[i] + 0.0F;
    if (args.stats == nullptr) continue;
    float* stats = args.stats + (query.row * args.heads + query.head) * 2;
    stats[0] = tile.max[i];
    stats[1] = tile.sum[i];
  }
}

// Computes the tile's queries and empties it.
void finish_tile(const AttentionArgs& args, Tile& tile) {
  std::int32_t last = 0;
  for (int i = 0; i < tile.count; ++i) last = std::max(last, tile.queries[i].position);
  std::fill_n(tile.out, tile.count * round_up(args.kv->head_dim), 0.0F);
  with_storage(args.kv->dtype, [&](auto stored) {
    for (int block = 0; block <= last / kAttentionBlock; ++block)
      add_block<decltype(stored)>(args, block, tile);
  });
  write_results(args, tile);
  tile.count = 0;
}

void add_query(const AttentionArgs& args, const Query& query, Tile& tile) {
  const int head_dim = args.kv->head_dim;
  const float* q = args.q + query.row * args.ldq + static_cast<std::int64_t>(query.head) * head_dim;
  std::copy_n(q, head_dim, tile.q + tile.count * round_up(head_dim));
  tile.queries[tile.count++] = query;
  if (tile.count == kTileQueries) finish_tile(args, tile);
}

void attention(const AttentionArgs& args) {
  const std::int32_t group = args.heads / args.kv->kv_heads;
  Tile tile;
  for (const SequenceSpan& span : args.spans) {
    for (std::int32_t r = 0; r < span.rows; ++r) {
      for (std::int32_t g = 0; g < group; ++g) {
        const Query query = {.blocks = span.block_table,
                             .position = span.first_position + r,
                             .row = static_cast<std::int64_t>(span.first_row) + r,
                             .head = args.kv_head * group + g};
        add_query(args, query, tile);
      }
    }
  }
  if (tile.count > 0) finish_tile(args, tile);
}

template <class Stored>
HWY_INLINE void round_row(const float* from, std::int32_t count, typename Stored::Raw* to) {
  std::int32_t c = 0;
  for (; c + kLanes <= count; c += kLanes) Stored::store(hn::LoadU(F32(), from + c), to + c);
  for (; c < count; ++c) Stored::store_one(from[c], to + c);
}

// Rows [first, end) of the span, all in one block, into every head.
template <class Stored>
void store_rows(const KvStoreArgs& args, std::int32_t first, std::int32_t end) {
  using Raw = typename Stored::Raw;
  const KvView& kv = *args.kv;
  const std::int32_t position = args.span.first_position + first;
  const std::int32_t slot = position % kAttentionBlock;
  const std::int32_t block = args.span.block_table[position / kAttentionBlock];
  for (std::int32_t head = 0; head < kv.kv_heads; ++head) {
    Raw* keys = reinterpret_cast<Raw*>(kv.keys(block, head)) + slot;
    Raw* values = reinterpret_cast<Raw*>(kv.values(block, head)) + slot * kv.head_dim;
    for (std::int32_t r = 0; r < end - first; ++r) {
      const std::int64_t source =
          (static_cast<std::int64_t>(args.span.first_row) + first + r) * args.ld + head * kv.head_dim;
      Raw key[kMaxHeadDim];
      round_row<Stored>(args.k + source, kv.head_dim, key);
      for (std::int32_t c = 0; c < kv.head_dim; ++c) keys[c * kAttentionBlock + r] = key[c];
      round_row<Stored>(args.v + source, kv.head_dim, values + r * kv.head_dim);
    }
  }
}

void kv_store(const KvStoreArgs& args) {
  with_storage(args.kv->dtype, [&](auto stored) {
    for (std::int32_t first = 0; first < args.span.rows;) {
      const std::int32_t slot = (args.span.first_position + first) % kAttentionBlock;
      const std::int32_t end = std::min(args.span.rows, first + kAttentionBlock - slot);
      store_rows<decltype(stored)>(args, first, end);
      first = end;
    }
  });
}

}  // namespace

void fill_attention_target(OpTable& table) {
  table.attention = attention;
  table.kv_store = kv_store;
}

}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::kernels {

HWY_EXPORT(fill_attention_target);

void cpu::fill_attention(OpTable& table) {
  HWY_DYNAMIC_DISPATCH(fill_attention_target)(table);
}

}  // namespace rondo::kernels
#endif  // HWY_ONCE
