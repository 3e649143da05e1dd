#include "engine/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace rondo::engine {
namespace {

std::int32_t pick(std::mt19937& rng, std::initializer_list<std::int32_t> choices) {
  return *(choices.begin() + rng() % choices.size());
}

std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> out;
  out.reserve(values.size());
  for (float value : values) out.push_back(std::bit_cast<std::uint32_t>(value));
  return out;
}

kernels::SamplingParams random_sampling(std::mt19937& rng) {
  kernels::SamplingParams sampling;
  switch (rng() % 5) {
    case 0:
      sampling.temperature = 0;
      break;
    case 1:
      sampling.temperature = 0.7F;
      sampling.top_k = 5;
      break;
    case 2:
      sampling.top_p = 0.9F;
      sampling.min_p = 0.05F;
      break;
    default:
      break;
  }
  return sampling;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const RunSettings& settings) {
  return out << "max_running " << settings.max_running << ", max_batch_tokens " << settings.max_batch_tokens
             << ", blocks " << settings.num_blocks << ", threads " << settings.threads << ", target "
             << settings.target;
}

TestEngine::TestEngine(const model::Model& model, const RunSettings& settings,
                       const text::Tokenizer* tokenizer)
    : compute_(settings.threads, settings.target) {
  const auto block = static_cast<std::int64_t>(KvStorage::block_bytes(model.spec()));
  Engine::Config config;
  config.kv_memory.bytes = block * settings.num_blocks;
  config.batch = {.max_batch_tokens = settings.max_batch_tokens, .max_running = settings.max_running};
  engine_ = Engine::create(config, model, tokenizer, compute_.context()).value();
}

void Responses::add(std::vector<Response>& finished) {
  for (Response& response : finished) {
    const std::int64_t id = response.id.value();
    RONDO_CHECK(by_id.emplace(id, std::move(response)).second);
  }
  finished.clear();
}

std::string difference(const Response& a, const Response& b) {
  if (a.reason != b.reason)
    return fmt::format("ended by {} and {}", batch::finish_reason_name(a.reason),
                       batch::finish_reason_name(b.reason));
  if (a.tokens != b.tokens)
    return fmt::format("tokens [{}] and [{}]", fmt::join(a.tokens, " "), fmt::join(b.tokens, " "));
  if (bits(a.logprobs) != bits(b.logprobs))
    return fmt::format("log-probabilities [{}] and [{}]", fmt::join(a.logprobs, " "),
                       fmt::join(b.logprobs, " "));
  if (bits(a.entropies) != bits(b.entropies))
    return fmt::format("entropies [{}] and [{}]", fmt::join(a.entropies, " "), fmt::join(b.entropies, " "));
  return {};
}

std::string difference(const Responses& a, const Responses& b) {
  if (a.by_id.size() != b.by_id.size())
    return fmt::format("{} and {} responses", a.by_id.size(), b.by_id.size());
  for (const auto& [id, response] : a.by_id) {
    const auto other = b.by_id.find(id);
    if (other == b.by_id.end()) return fmt::format("request {} only in the first", id);
    const std::string found = difference(response, other->second);
    if (!found.empty()) return fmt::format("request {}: {}", id, found);
  }
  return {};
}

Responses run_all(TestEngine& engine, const std::vector<Request>& requests, const AfterStep& after_step) {
  for (const Request& request : requests) RONDO_CHECK(engine->submit(request).has_value());
  Responses responses;
  std::vector<Response> finished;
  while (!engine->idle()) {
    RONDO_CHECK(engine->step(finished).has_value());
    responses.add(finished);
    if (after_step) after_step(*engine, responses);
  }
  return responses;
}

Responses run_all(const model::Model& model, const RunSettings& settings,
                  const std::vector<Request>& requests) {
  TestEngine engine(model, settings);
  return run_all(engine, requests);
}

Responses run_to_end(TestEngine& engine) {
  return run_all(engine, {});
}

void copy_weights(const model::Model& from, model::Model& to) {
  const auto& params = from.layout().params();
  for (std::size_t i = 0; i < params.size(); ++i) {
    std::vector<float> values(static_cast<std::size_t>(params[i].count()));
    const auto index = static_cast<model::ParamIndex>(i);
    from.weights().load(index, 0, params[i].rows, values.data());
    RONDO_CHECK(to.weights().store(index, 0, params[i].rows, values.data()).has_value());
  }
}

Request simple_request(std::int64_t id, std::vector<Token> prompt, std::int32_t max_new_tokens) {
  Request request;
  request.id = RequestId(id);
  request.group = GroupId(id);
  request.prompt = std::make_shared<const std::vector<Token>>(std::move(prompt));
  request.max_new_tokens = max_new_tokens;
  request.rng = Rng(7, RngPurpose::kRollout);
  request.counter.ordinal = static_cast<std::uint32_t>(id);
  return request;
}

model::ModelSpec random_spec(std::mt19937& rng, kernels::DType dtype) {
  model::ModelSpec spec = testing::tiny_spec(dtype);
  spec.hidden = pick(rng, {8, 17, 32, 45});
  spec.intermediate = pick(rng, {7, 16, 24, 40, 66});
  spec.layers = pick(rng, {1, 2, 3});
  spec.kv_heads = pick(rng, {1, 2, 3, 4, 8});
  spec.heads = spec.kv_heads * pick(rng, {1, 2, 3});
  spec.head_dim = pick(rng, {4, 6, 16, 18});
  spec.vocab = pick(rng, {5, 64, 97, 131});
  spec.tied_embeddings = rng() % 2 == 0;
  return spec;
}

std::vector<Request> random_requests(std::mt19937& rng, std::int32_t vocab, int num_groups) {
  std::vector<Request> requests;
  for (int group = 0; group < num_groups; ++group) {
    const auto prompt = std::make_shared<const std::vector<Token>>(testing::random_tokens(
        vocab, pick(rng, {1, 5, 33, 63, 64, 65, 66, 128, 129, 150}), static_cast<std::uint32_t>(rng())));
    const auto samples = static_cast<std::uint32_t>(1 + rng() % 4);
    for (std::uint32_t sample = 0; sample < samples; ++sample) {
      Request request = simple_request(static_cast<std::int64_t>(requests.size()), {}, 0);
      request.prompt = prompt;
      request.group = GroupId(group);
      request.max_new_tokens = pick(rng, {1, 2, 20, 64, 140});
      request.counter = {.step = 3, .ordinal = static_cast<std::uint32_t>(group), .sample = sample};
      request.sampling = random_sampling(rng);
      if (rng() % 4 == 0)
        request.stop = std::make_shared<const StopRules>(StopRules{
            .tokens = {static_cast<Token>(rng() % static_cast<std::uint32_t>(vocab))}, .strings = {}});
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

std::int32_t blocks_of_longest(const std::vector<Request>& requests) {
  std::int64_t blocks = 1;
  for (const Request& request : requests)
    blocks = std::max<std::int64_t>(blocks, kv::blocks_for(static_cast<std::int64_t>(request.prompt->size()) +
                                                           request.max_new_tokens - 1));
  return static_cast<std::int32_t>(blocks);
}

}  // namespace rondo::engine
