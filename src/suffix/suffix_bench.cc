// Append, draft and remove on sibling sequences; memory, and how much of the drafts would be accepted.
#include <benchmark/benchmark.h>

#include <array>
#include <memory>
#include <vector>

#include "suffix/draft.h"
#include "suffix/sibling_workload.h"

namespace rondo::suffix {
namespace {

const std::vector<std::vector<Token>>& siblings() {
  static const auto sequences = SiblingWorkload{}.sequences();
  return sequences;
}

std::unique_ptr<SuffixTree> full_tree(std::int32_t max_depth, std::size_t num_sequences) {
  auto tree = std::make_unique<SuffixTree>(SuffixTree::Config{.max_depth = max_depth});
  for (std::size_t i = 0; i < num_sequences; ++i)
    tree->append(RequestId(static_cast<std::int64_t>(i)), siblings()[i]);
  return tree;
}

// All siblings take turns, one token each.
void append(benchmark::State& state) {
  const auto max_depth = static_cast<std::int32_t>(state.range(0));
  const auto& sequences = siblings();
  std::int64_t num_tokens = 0;
  for (auto _ : state) {
    SuffixTree tree({.max_depth = max_depth});
    for (std::size_t at = 0; at < sequences[0].size(); ++at)
      for (std::size_t i = 0; i < sequences.size(); ++i)
        tree.append(RequestId(static_cast<std::int64_t>(i)), {&sequences[i][at], 1});
    num_tokens += tree.num_tokens();
    const auto all = static_cast<double>(tree.num_tokens());
    state.counters["bytes/token"] = static_cast<double>(tree.memory_bytes()) / all;
    state.counters["nodes/token"] = static_cast<double>(tree.num_nodes()) / all;
  }
  state.counters["time/token"] = benchmark::Counter(
      static_cast<double>(num_tokens), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(append)->Arg(24)->Arg(64)->Unit(benchmark::kMillisecond);

void append_in_spans(benchmark::State& state) {
  std::int64_t num_tokens = 0;
  for (auto _ : state) num_tokens += full_tree(24, siblings().size())->num_tokens();
  state.counters["time/token"] = benchmark::Counter(
      static_cast<double>(num_tokens), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(append_in_spans)->Unit(benchmark::kMillisecond);

void remove(benchmark::State& state) {
  std::int64_t num_tokens = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const auto tree = full_tree(24, siblings().size());
    num_tokens += tree->num_tokens();
    state.ResumeTiming();
    for (std::size_t i = 0; i < siblings().size(); ++i) tree->remove(RequestId(static_cast<std::int64_t>(i)));
  }
  state.counters["time/token"] = benchmark::Counter(
      static_cast<double>(num_tokens), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(remove)->Unit(benchmark::kMillisecond);

struct Buffers {
  std::array<Token, kMaxDraftTokens> tokens;
  std::array<std::int32_t, kMaxDraftTokens> parents;
  std::array<float, kMaxDraftTokens> scores;
  DraftBuffers spans() { return {tokens, parents, scores}; }
};

// Every place of every sibling as a context, found in the full tree.
void draft_after_context(benchmark::State& state) {
  const DraftArgs args{.max_tokens = static_cast<std::int32_t>(state.range(1)),
                       .top_k = static_cast<std::int32_t>(state.range(2))};
  const auto tree = full_tree(static_cast<std::int32_t>(state.range(0)), siblings().size());
  Buffers out;
  std::size_t turn = 0;
  std::int64_t num_drafted = 0;
  for (auto _ : state) {
    const auto& sequence = siblings()[turn % siblings().size()];
    const auto context = std::span(sequence).first(1 + turn * 7919 % sequence.size());
    num_drafted += draft(*tree, tree->match(context), args, out.spans()).num_tokens;
    ++turn;
  }
  state.counters["drafted"] = static_cast<double>(num_drafted) / static_cast<double>(state.iterations());
}
BENCHMARK(draft_after_context)
    ->Args({24, 8, 1})
    ->Args({64, 8, 1})
    ->Args({24, 8, 2})
    ->Args({24, 16, 4})
    ->Unit(benchmark::kMicrosecond);

// How many tokens of the draft the sequence takes: the path from the root that equals it.
std::size_t num_accepted(const Buffers& out, const Draft& draft, std::span<const Token> next) {
  std::size_t accepted = 0;
  std::int32_t at = -1;
  for (std::size_t i = 0; i < static_cast<std::size_t>(draft.num_tokens) && accepted < next.size(); ++i) {
    if (out.parents[i] != at || out.tokens[i] != next[accepted]) continue;
    at = static_cast<std::int32_t>(i);
    ++accepted;
  }
  return accepted;
}

// One sibling decodes while range(0) others are complete: one draft and append per step.
void replay(benchmark::State& state) {
  const DraftArgs args{.max_tokens = static_cast<std::int32_t>(state.range(1)),
                       .top_k = static_cast<std::int32_t>(state.range(2))};
  const RequestId own(1000);
  const auto& sequence = siblings().back();
  Buffers out;
  std::int64_t num_steps = 0;
  std::int64_t num_tokens = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const auto tree = full_tree(24, static_cast<std::size_t>(state.range(0)));
    state.ResumeTiming();
    for (std::size_t at = 0; at < sequence.size(); ++num_steps) {
      const Draft got = draft(*tree, tree->match(own), args, out.spans());
      const auto rest = std::span(sequence).subspan(at);
      const std::size_t step = std::min(rest.size(), num_accepted(out, got, rest) + 1);
      at += tree->append(own, rest.first(step));
    }
    num_tokens += static_cast<std::int64_t>(sequence.size());
  }
  state.counters["tokens/step"] = static_cast<double>(num_tokens) / static_cast<double>(num_steps);
  state.counters["time/step"] = benchmark::Counter(static_cast<double>(num_steps),
                                                   benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(replay)
    ->Args({0, 8, 1})
    ->Args({15, 8, 1})
    ->Args({63, 8, 1})
    ->Args({63, 8, 2})
    ->Args({63, 16, 4})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rondo::suffix
