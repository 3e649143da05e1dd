// Speed of attention on one thread: decoding at several contexts, a group that shares its prompt, prefill and
// the backward pass. SmolLM2-135M's shape: 3 KV heads of 64, 3 query heads each. items = FMA operations x 2.
#include "kernels/attention_test.h"

#include <benchmark/benchmark.h>

namespace rondo::kernels {
namespace {

constexpr AttentionShape kShape = {.dtype = DType::kF16, .head_dim = 64, .kv_heads = 3, .group = 3};

struct Bench {
  PagedCache cache;
  std::vector<OwnedSpan> spans;
  std::int32_t rows = 0;
  double pairs = 0;  // (row, visible position)
  std::vector<float> q, out, dout, stats;

  explicit Bench(std::int32_t blocks) : cache(kShape, blocks, 1) {}

  void add_span(std::vector<std::int32_t> blocks, std::int32_t first_position, std::int32_t count) {
    spans.push_back({std::move(blocks), first_position, rows, count});
    rows += count;
    for (std::int32_t r = 0; r < count; ++r) pairs += first_position + r + 1;
  }
  void draw() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    q.resize(static_cast<std::size_t>(rows * kShape.q_width()));
    for (float& x : q) x = normal(random);
    dout = q;
    out.resize(q.size());
    stats.resize(static_cast<std::size_t>(rows * kShape.heads() * 2));
  }
  void forward(const OpTable& table) {
    const std::vector<SequenceSpan> views = views_of(spans);
    for (std::int32_t head = 0; head < kShape.kv_heads; ++head) {
      table.attention({.kv = &cache.view(),
                       .spans = views,
                       .kv_head = head,
                       .heads = kShape.heads(),
                       .scale = 0.125F,
                       .q = q.data(),
                       .ldq = kShape.q_width(),
                       .out = out.data(),
                       .ldo = kShape.q_width(),
                       .stats = stats.data()});
    }
  }
  // Floating-point operations of `products` products of head_dim per pair and query head.
  double flops(int products) const { return pairs * kShape.heads() * 2.0 * products * kShape.head_dim; }
};

const OpTable& target(const benchmark::State& state) {
  const auto targets = available_targets();
  return *targets[std::min(static_cast<std::size_t>(state.range(0)), targets.size() - 1)];
}

void report(benchmark::State& state, double flops) {
  state.SetLabel(target(state).name);
  state.counters["FLOP/s"] =
      benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

// Sixteen sequences of `context` positions with nothing in common, one token each.
void decode(benchmark::State& state) {
  const auto context = static_cast<std::int32_t>(state.range(1));
  Bench bench(16 * (context / kAttentionBlock + 1));
  for (int i = 0; i < 16; ++i) bench.add_span(bench.cache.table(context), context - 1, 1);
  bench.draw();
  for (auto _ : state) bench.forward(target(state));
  report(state, bench.flops(2));
}
BENCHMARK(decode)->ArgsProduct({{0, 1}, {64, 256, 1024, 8192}});

// The same with all blocks but the last shared.
void decode_shared(benchmark::State& state) {
  const auto context = static_cast<std::int32_t>(state.range(1));
  Bench bench(context / kAttentionBlock + 17);
  const std::vector<std::int32_t> prompt = bench.cache.table(context - kAttentionBlock);
  for (int i = 0; i < 16; ++i) bench.add_span(bench.cache.table(context, prompt), context - 1, 1);
  bench.draw();
  for (auto _ : state) bench.forward(target(state));
  report(state, bench.flops(2));
}
BENCHMARK(decode_shared)->ArgsProduct({{0, 1}, {256, 1024, 8192}});

void prefill(benchmark::State& state) {
  const auto rows = static_cast<std::int32_t>(state.range(1));
  Bench bench(rows / kAttentionBlock + 1);
  bench.add_span(bench.cache.table(rows), 0, rows);
  bench.draw();
  for (auto _ : state) bench.forward(target(state));
  report(state, bench.flops(2));
}
BENCHMARK(prefill)->ArgsProduct({{0, 1}, {256, 2048}})->Unit(benchmark::kMillisecond);

// A unit of one prompt of 192 and 8 samples of 256.
void backward(benchmark::State& state) {
  constexpr std::int32_t kPrompt = 3 * kAttentionBlock;
  Bench bench(64);
  bench.add_span(bench.cache.table(kPrompt), 0, kPrompt);
  const std::vector<std::int32_t> prompt = bench.spans[0].blocks;
  for (int i = 0; i < 8; ++i) bench.add_span(bench.cache.table(kPrompt + 256, prompt), kPrompt, 256);
  bench.draw();
  bench.forward(target(state));
  std::vector<std::int32_t> position_rows;
  std::vector<std::int64_t> begins;
  for (const OwnedSpan& span : bench.spans) {
    begins.push_back(static_cast<std::int64_t>(position_rows.size()));
    for (std::int32_t p = 0; p < span.first_position; ++p) position_rows.push_back(p);
    for (std::int32_t p = 0; p < span.rows; ++p) position_rows.push_back(span.first_row + p);
  }
  std::vector<float> dq(bench.q.size());
  std::vector<float> dk(static_cast<std::size_t>(bench.rows * kShape.kv_width()));
  std::vector<float> dv(dk.size());
  AlignedBuffer<std::byte> scratch(attention_grad_scratch(bench.rows, kShape.head_dim, kShape.group));
  const std::vector<SequenceSpan> views = views_of(bench.spans);
  for (auto _ : state) {
    for (std::int32_t head = 0; head < kShape.kv_heads; ++head) {
      target(state).attention_grad({.kv = &bench.cache.view(),
                                    .spans = views,
                                    .position_rows = position_rows.data(),
                                    .span_position_begin = begins.data(),
                                    .kv_head = head,
                                    .heads = kShape.heads(),
                                    .scale = 0.125F,
                                    .q = bench.q.data(),
                                    .ldq = kShape.q_width(),
                                    .out = bench.out.data(),
                                    .dout = bench.dout.data(),
                                    .ldo = kShape.q_width(),
                                    .stats = bench.stats.data(),
                                    .dq = dq.data(),
                                    .lddq = kShape.q_width(),
                                    .dk = dk.data(),
                                    .dv = dv.data(),
                                    .lddkv = kShape.kv_width(),
                                    .rows = bench.rows,
                                    .scratch = scratch.span()});
    }
  }
  report(state, bench.flops(5));
}
BENCHMARK(backward)->Args({0})->Args({1})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rondo::kernels
