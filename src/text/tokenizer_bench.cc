// Encode and decode speed on one thread, on a small built-in tokenizer and a made-up text: to compare
// commits. For a real tokenizer and a real corpus: `text_probe speed tokenizer.json corpus.txt`.
#include <benchmark/benchmark.h>

#include <string>

#include "text/tokenizer.h"
#include "text/tokenizer_fixture.h"

namespace rondo::text {
namespace {

std::string sample_text() {
  const std::string sentence =
      "The other hello is there, he said; 12 of them (well, 13) held the shell.\n    if (the == hello) { "
      "tell(he); }\n";
  std::string text;
  while (text.size() < (1U << 20)) text += sentence;
  return text;
}

void encode(benchmark::State& state, std::string_view patch) {
  const auto tokenizer = Tokenizer::from_json(fixture_json(patch));
  const std::string text = sample_text();
  std::size_t tokens = 0;
  for (auto _ : state) tokens += (*tokenizer)->encode(text).size();
  state.SetItemsProcessed(static_cast<std::int64_t>(tokens));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}

void BM_EncodeGpt2(benchmark::State& state) {
  encode(state, "{}");
}
BENCHMARK(BM_EncodeGpt2);

// A pattern without a scanner: PCRE2.
void BM_EncodeOtherPattern(benchmark::State& state) {
  encode(state,
         R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated",
      "pattern": {"Regex": " ?\\p{L}+| ?\\p{N}+|\\s+(?!\\S)|\\s+"}}, {"type": "ByteLevel", "add_prefix_space": false,
      "use_regex": false}]}})");
}
BENCHMARK(BM_EncodeOtherPattern);

void BM_EncodeOneLongWord(benchmark::State& state) {
  const auto tokenizer = Tokenizer::from_json(fixture_json());
  const std::string text(static_cast<std::size_t>(state.range(0)), 'l');
  for (auto _ : state) benchmark::DoNotOptimize((*tokenizer)->encode(text));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_EncodeOneLongWord)->Arg(1 << 10)->Arg(1 << 15)->Arg(1 << 20);

void BM_Decode(benchmark::State& state) {
  const auto tokenizer = Tokenizer::from_json(fixture_json());
  const auto tokens = (*tokenizer)->encode(sample_text());
  for (auto _ : state) benchmark::DoNotOptimize((*tokenizer)->decode(tokens, true));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(tokens.size()));
}
BENCHMARK(BM_Decode);

}  // namespace
}  // namespace rondo::text
