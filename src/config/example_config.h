// A config tree with a field of every type, for the tests of this module.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "config/byte_size.h"

namespace rondo::config {

enum class Aggregation { kTokenMean, kSequenceMean };

constexpr auto enum_names(Aggregation) {
  using enum Aggregation;
  return std::array{std::pair{kTokenMean, "token-mean"}, std::pair{kSequenceMean, "seq-mean"}};
}

struct SamplingConfig {
  double temperature = 1.0;
  float top_p = 1.0f;
  std::vector<std::string> stop;

  template <class V>
  void visit(V& v) {
    v.field("temperature", temperature, "Softmax temperature; 0 is greedy.", {.min = 0});
    v.field("top_p", top_p, "Nucleus | mass.", {.above = 0, .max = 1});
    v.field("stop", stop, "Strings that end a response.");
  }
};

struct RolloutConfig {
  int n = 8;
  bool chunked = true;
  ByteSize kv_memory{kGiB};
  SamplingConfig sampling;

  template <class V>
  void visit(V& v) {
    v.field("n", n, "Responses per prompt.", {.min = 1, .max = 1024});
    v.field("chunked", chunked, "Prefill in pieces.");
    v.field("kv_memory", kv_memory, "Memory of the KV pool.", {.min = kMiB});
    v.section("sampling", sampling, "How tokens are drawn.");
  }
  Result<void> validate() const {
    if (n == 1 && chunked) return fail(Code::kInvalidArgument, "n = 1 needs chunked = false");
    return {};
  }
};

struct ExampleConfig {
  std::uint32_t seed = 1;
  std::int64_t total_tokens = 0;
  std::string name = "run";
  Aggregation loss_agg_mode = Aggregation::kTokenMean;
  std::vector<double> betas = {0.9, 0.999};
  RolloutConfig rollout;
  SamplingConfig eval;

  template <class V>
  void visit(V& v) {
    v.field("seed", seed, "Key of every random number.");
    v.section("rollout", rollout, "Generation of responses.");
    v.field("total_tokens", total_tokens, "Budget; 0 is none.", {.min = 0});
    v.field("name", name, "Name of the run.");
    v.field("loss_agg_mode", loss_agg_mode, "How token losses are averaged.");
    v.field("betas", betas, "Decay rates of AdamW.", {.min = 0, .below = 1});
    v.section("eval", eval, "Sampling of the evaluation.\nGreedy as a rule.");
  }
};

}  // namespace rondo::config
