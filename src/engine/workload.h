// Workload: random models, requests for them, and ways to run them. For this module's tests.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "testing/tiny_model.h"

namespace rondo::engine {

/// How the same requests may be run: none of this may change a bit of the responses.
struct RunSettings {
  std::int32_t max_running = 8;
  std::int32_t max_batch_tokens = 256;
  std::int32_t num_blocks = 64;
  int threads = 1;
  const char* target = "auto";
};
std::ostream& operator<<(std::ostream& out, const RunSettings& settings);

/// An engine with what it borrows.
class TestEngine final {
 public:
  TestEngine(const model::Model& model, const RunSettings& settings,
             const text::Tokenizer* tokenizer = nullptr);
  Engine& operator*() { return *engine_; }
  Engine* operator->() { return engine_.get(); }

 private:
  testing::Compute compute_;
  std::unique_ptr<Engine> engine_;
};

/// Responses by request id. Equal means equal bits.
struct Responses {
  std::map<std::int64_t, Response> by_id;

  void add(std::vector<Response>& finished);
  const Response& operator[](std::int64_t id) const { return by_id.at(id); }
};
/// Empty, or the first difference of the two.
std::string difference(const Responses& a, const Responses& b);
std::string difference(const Response& a, const Response& b);

/// Called after every step while a run goes on; it may submit and cancel.
using AfterStep = std::function<void(Engine&, Responses&)>;
/// Submits all requests in order, and steps until the engine is idle.
Responses run_all(TestEngine& engine, const std::vector<Request>& requests, const AfterStep& after_step = {});
Responses run_all(const model::Model& model, const RunSettings& settings,
                  const std::vector<Request>& requests);
Responses run_to_end(TestEngine& engine);

/// The parameters of `from` go into `to`, a model of the same shape.
void copy_weights(const model::Model& from, model::Model& to);

/// A request for `max_new_tokens` at temperature 1, in a group of its own.
Request simple_request(std::int64_t id, std::vector<Token> prompt, std::int32_t max_new_tokens);

/// A small decoder with random dimensions: any V from 1 to 8, odd widths, grouped queries, tied or not.
model::ModelSpec random_spec(std::mt19937& rng, kernels::DType dtype);
/// `num_groups` groups of one to four samples: prompts of 1 to 150 tokens (around borders of KV blocks, and
/// beyond two), up to 140 new tokens, all kinds of sampling, some with stop tokens.
std::vector<Request> random_requests(std::mt19937& rng, std::int32_t vocab, int num_groups);
/// The longest of them alone fits in this many blocks.
std::int32_t blocks_of_longest(const std::vector<Request>& requests);

}  // namespace rondo::engine
