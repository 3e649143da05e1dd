#include "engine/engine.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/check.h"

namespace rondo::engine {

Result<std::unique_ptr<Engine>> Engine::create(const Config& config, const model::Model& model,
                                               const text::Tokenizer* tokenizer,
                                               const kernels::Context& context) {
  const model::ModelSpec& spec = model.spec();
  const auto block = static_cast<std::int64_t>(KvStorage::block_bytes(spec));
  const std::int64_t blocks = std::min<std::int64_t>(config.kv_memory.bytes / block, INT32_MAX);
  if (blocks < 1)
    return fail(Code::kInvalidArgument, "engine.kv_memory = {} holds no KV block; one takes {} ({} tokens)",
                config::to_string(config.kv_memory), config::to_string({block}), kv::kBlockTokens);
  const auto num_blocks = static_cast<std::int32_t>(blocks);
  RONDO_ASSIGN(KvStorage kv, KvStorage::create(spec, num_blocks));
  RONDO_ASSIGN(auto planner, batch::Planner::create(config.batch, num_blocks));
  return std::unique_ptr<Engine>(new Engine(model, tokenizer, context, std::move(kv), std::move(planner),
                                            config.batch.max_batch_tokens, num_blocks));
}

Engine::Engine(const model::Model& model, const text::Tokenizer* tokenizer, const kernels::Context& context,
               KvStorage kv, std::unique_ptr<batch::Planner> planner, std::int64_t max_rows,
               std::int32_t num_blocks)
    : model_(&model),
      tokenizer_(tokenizer),
      context_(context),
      kv_(std::move(kv)),
      planner_(std::move(planner)),
      forward_(model, kv_, context, max_rows),
      num_blocks_(num_blocks),
      scratch_(static_cast<std::size_t>(context.pool->num_threads())) {}

Result<void> Engine::submit(Request request) {
  const model::ModelSpec& spec = model_->spec();
  if (request.prompt == nullptr || request.prompt->empty())
    return fail(Code::kInvalidArgument, "request {}: the prompt is empty", request.id);
  for (Token token : *request.prompt)
    if (token < 0 || token >= spec.vocab)
      return fail(Code::kInvalidArgument,
                  "request {}: token id {} lies outside the model's vocabulary of {}; tokenizer and model do "
                  "not match",
                  request.id, token, spec.vocab);
  const std::int64_t longest = static_cast<std::int64_t>(request.prompt->size()) + request.max_new_tokens;
  if (longest > spec.max_positions)
    return fail(Code::kInvalidArgument,
                "request {}: {} prompt tokens and {} new ones exceed the {} positions", request.id,
                request.prompt->size(), request.max_new_tokens, spec.max_positions);
  if (request.stop != nullptr && !request.stop->strings.empty() && tokenizer_ == nullptr)
    return fail(Code::kInvalidArgument, "request {}: stop strings need a tokenizer", request.id);
  RONDO_TRY(request.sampling.validate());
  RONDO_ASSIGN(const batch::Slot slot,
               planner_->add({.id = request.id,
                              .group = request.group,
                              .prompt = request.prompt,
                              .max_new_tokens = request.max_new_tokens,
                              .sample = static_cast<std::int32_t>(request.counter.sample)}));
  if (static_cast<std::size_t>(slot.value()) >= live_.size())
    live_.resize(static_cast<std::size_t>(slot.value()) + 1);
  Live& state = live(slot);
  state.logprobs.clear();
  state.entropies.clear();
  state.logprobs.reserve(static_cast<std::size_t>(request.max_new_tokens));
  state.entropies.reserve(static_cast<std::size_t>(request.max_new_tokens));
  state.stop.reset();
  if (request.stop != nullptr) state.stop.emplace(request.stop, tokenizer_);
  state.request = std::move(request);
  return {};
}

std::optional<Response> Engine::cancel(RequestId id) {
  std::optional<batch::Finished> ended = planner_->cancel(id);
  if (!ended) return std::nullopt;
  return make_response(std::move(*ended));
}

Response Engine::make_response(batch::Finished&& finished) {
  Live& state = live(finished.slot);
  RONDO_CHECK_EQ(finished.response.size(), state.logprobs.size());
  return {.id = finished.id,
          .tokens = std::move(finished.response),
          .logprobs = std::move(state.logprobs),
          .entropies = std::move(state.entropies),
          .reason = finished.reason};
}

Result<void> Engine::step(std::vector<Response>& finished) {
  planner_->plan(plan_);
  if (plan_.empty()) return {};
  kv_.copy(plan_.copies);
  gather_spans();
  forward_.run({.tokens = plan_.tokens, .positions = plan_.positions, .spans = spans_});
  RONDO_TRY(sample_rows());
  finished_.clear();
  planner_->commit(plan_, samples_, finished_);
  for (batch::Finished& ended : finished_) finished.push_back(make_response(std::move(ended)));
  return {};
}

void Engine::gather_spans() {
  tables_.clear();
  for (BlockId block : plan_.tables) tables_.push_back(block.value());
  spans_.clear();
  for (const batch::Segment& segment : plan_.segments)
    spans_.push_back({.block_table = tables_.data() + segment.table_begin,
                      .first_position = segment.begin,
                      .first_row = segment.first_row,
                      .rows = segment.end - segment.begin});
}

Result<void> Engine::sample_rows() {
  samples_.assign(plan_.logit_rows.size(), {});
  for (std::size_t first = 0; first < plan_.logit_rows.size(); first += Forward::kLogitRows) {
    const std::size_t count = std::min<std::size_t>(Forward::kLogitRows, plan_.logit_rows.size() - first);
    RONDO_TRY(sample_chunk(first, count));
  }
  return {};
}

Result<void> Engine::sample_chunk(std::size_t first, std::size_t count) {
  const float* logits = forward_.logits(std::span(plan_.logit_rows).subspan(first, count));
  std::mutex mutex;
  Result<void> error;
  const auto threads = static_cast<std::size_t>(context_.pool->num_threads());
  context_.pool->run([&](int thread) {
    for (std::size_t i = static_cast<std::size_t>(thread); i < count; i += threads) {
      auto sampled = sample_row(first + i, logits + i * static_cast<std::size_t>(model_->spec().vocab),
                                scratch_[static_cast<std::size_t>(thread)]);
      if (sampled) continue;
      const std::lock_guard lock(mutex);
      error = std::move(sampled);
    }
  });
  return error;
}

// Runs on a worker: touches the state of its own sequence alone.
Result<void> Engine::sample_row(std::size_t index, const float* logits, kernels::SamplingScratch& scratch) {
  const auto row = static_cast<std::size_t>(plan_.logit_rows[index]);
  const batch::Segment& segment = plan_.segments[static_cast<std::size_t>(plan_.row_segments[row])];
  Live& state = live(segment.slot);
  RngCounter counter = state.request.counter;
  counter.position = static_cast<std::uint32_t>(state.logprobs.size());
  const model::ModelSpec& spec = model_->spec();
  RONDO_ASSIGN(const kernels::Sampled sampled,
               kernels::sample(*context_.table, {logits, static_cast<std::size_t>(spec.vocab)},
                               state.request.sampling, {state.request.rng, counter}, spec.chains(), scratch));
  state.logprobs.push_back(sampled.logprob);
  state.entropies.push_back(sampled.entropy);
  samples_[index].token = sampled.token;
  if (state.stop) samples_[index].finish = state.stop->push(sampled.token);
  return {};
}

}  // namespace rondo::engine
