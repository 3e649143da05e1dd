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

Result<void> Engine::check(const Request& request) const {
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
  RONDO_CHECK_EQ(request.progress.tokens.size(), request.progress.logprobs.size());
  RONDO_CHECK_EQ(request.progress.tokens.size(), request.progress.entropies.size());
  return request.sampling.validate();
}

// The positions that the request's images cover, if they are whole and fit each other; else lets go of them.
std::int32_t Engine::stored_tokens(Request& request) {
  if (request.stored.empty()) return 0;
  std::int32_t end = 0;
  bool whole = true;
  for (const auto& image : request.stored) {
    whole = whole && image->first_block == end && image->intact();
    end = image->end_block();
  }
  const std::int32_t num_tokens = request.stored.back()->num_tokens;
  const auto known = static_cast<std::int32_t>(request.prompt->size() + request.progress.tokens.size());
  if (whole && num_tokens < known && kv::blocks_for(num_tokens) == end) return num_tokens;
  ++num_damaged_images_;
  request.stored.clear();
  return 0;
}

Result<void> Engine::submit(Request request) {
  RONDO_TRY(check(request));
  RONDO_ASSIGN(const batch::Slot slot,
               planner_->add({.id = request.id,
                              .group = request.group,
                              .prompt = request.prompt,
                              .max_new_tokens = request.max_new_tokens,
                              .sample = static_cast<std::int32_t>(request.counter.sample),
                              .chunk_tokens = request.chunk_tokens,
                              .response = request.progress.tokens,
                              .num_stored = stored_tokens(request),
                              .keep_prompt = request.keep_prompt}));
  if (static_cast<std::size_t>(slot.value()) >= live_.size())
    live_.resize(static_cast<std::size_t>(slot.value()) + 1);
  Live& state = live(slot);
  state.logprobs = std::move(request.progress.logprobs);
  state.entropies = std::move(request.progress.entropies);
  state.logprobs.reserve(static_cast<std::size_t>(request.max_new_tokens));
  state.entropies.reserve(static_cast<std::size_t>(request.max_new_tokens));
  state.stop.reset();
  if (request.stop != nullptr) {
    state.stop.emplace(request.stop, tokenizer_);
    for (const Token token : request.progress.tokens) state.stop->push(token);
  }
  state.request = std::move(request);
  return {};
}

std::optional<Response> Engine::cancel(RequestId id) {
  std::optional<batch::Finished> ended = planner_->cancel(id);
  if (!ended) return std::nullopt;
  return make_response(std::move(*ended));
}

std::optional<Progress> Engine::take(RequestId id) {
  std::optional<Response> response = cancel(id);
  if (!response) return std::nullopt;
  return Progress{std::move(response->tokens), std::move(response->logprobs), std::move(response->entropies)};
}

ProgressView Engine::progress(RequestId id) const {
  const auto slot = planner_->roster().find(id);
  RONDO_CHECK(slot.has_value());
  const Live& state = live_[static_cast<std::size_t>(slot->value())];
  return {planner_->roster().sequence(*slot).response(), state.logprobs, state.entropies};
}

std::shared_ptr<const kv::Image> Engine::export_kv(RequestId id, std::int32_t first_block,
                                                   std::int32_t end_block) const {
  const auto slot = planner_->roster().find(id);
  if (!slot) return nullptr;
  const batch::Sequence& sequence = planner_->roster().sequence(*slot);
  if (!sequence.resident() || !sequence.parked()) return nullptr;
  const auto filled = static_cast<std::int32_t>(kv::blocks_for(sequence.num_computed()));
  const std::int32_t end = end_block < 0 ? filled : end_block;
  RONDO_CHECK(first_block < end && end <= filled);
  const auto first = static_cast<std::size_t>(first_block);
  return read_image(sequence.table().blocks().subspan(first, static_cast<std::size_t>(end) - first),
                    first_block, std::min(sequence.num_computed(), end * kv::kBlockTokens));
}

std::shared_ptr<const kv::Image> Engine::export_prompt(GroupId group) const {
  const auto prompt = planner_->roster().prompt_blocks(group);
  if (prompt.empty()) return nullptr;
  return read_image(prompt.blocks, 0, prompt.num_tokens);
}

// `blocks` as they lie here: positions up to `num_tokens` are filled.
std::shared_ptr<const kv::Image> Engine::read_image(std::span<const BlockId> blocks, std::int32_t first_block,
                                                    std::int32_t num_tokens) const {
  auto image = std::make_shared<kv::Image>();
  image->first_block = first_block;
  image->num_blocks = static_cast<std::int32_t>(blocks.size());
  image->num_tokens = num_tokens;
  image->bytes = kv::ImageBuffer(blocks.size() * KvStorage::block_bytes(model_->spec()));
  kv_.read(blocks, image->bytes.span());
  return image;
}

void Engine::drop_kv() {
  planner_->drop_kv();
  for (Live& state : live_) state.request.stored.clear();
}

Response Engine::make_response(batch::Finished&& finished) {
  Live& state = live(finished.slot);
  RONDO_CHECK_EQ(finished.response.size(), state.logprobs.size());
  return {.id = finished.id,
          .group = state.request.group,
          .tokens = std::move(finished.response),
          .logprobs = std::move(state.logprobs),
          .entropies = std::move(state.entropies),
          .reason = finished.reason};
}

Result<void> Engine::step(std::vector<Response>& finished) {
  make_drafts();
  planner_->plan(plan_, drafts_);
  outcome_.clear();
  if (plan_.empty()) return {};
  restore_kv();
  kv_.copy(plan_.copies);
  gather_spans();
  forward_.run(
      {.tokens = plan_.tokens, .positions = plan_.positions, .spans = spans_, .extra_stores = extra_stores_});
  RONDO_TRY(sample_rows());
  planner_->commit(plan_, samples_, outcome_);
  for (batch::Finished& ended : outcome_.finished) finished.push_back(make_response(std::move(ended)));
  return {};
}

void Engine::make_drafts() {
  drafts_.clear();
  if (!drafter_) return;
  contexts_.clear();
  for (const batch::Slot slot : planner_->roster().residents()) {
    const batch::Sequence& sequence = planner_->roster().sequence(slot);
    if (sequence.state() != batch::SequenceState::kDecoding || sequence.num_left() < 2) continue;
    contexts_.push_back({.slot = slot,
                         .id = sequence.spec().id,
                         .group = sequence.spec().group,
                         .prompt = *sequence.spec().prompt,
                         .response = sequence.response(),
                         .max_tokens = sequence.num_left() - 1});
  }
  if (!contexts_.empty()) drafter_(contexts_, drafts_);
}

void Engine::restore_kv() {
  for (const batch::Restore& restore : plan_.restores) {
    Request& request = live(restore.slot).request;
    for (const auto& image : request.stored) {
      const std::int32_t begin = std::max(restore.first_block, image->first_block);
      const std::int32_t end = std::min(restore.first_block + restore.num_blocks, image->end_block());
      for (std::int32_t b = begin; b < end; ++b)
        kv_.write(plan_.tables[static_cast<std::size_t>(restore.table_begin + b)].value(), image->block(b));
    }
    request.stored.clear();
  }
}

void Engine::gather_spans() {
  tables_.clear();
  for (BlockId block : plan_.tables) tables_.push_back(block.value());
  spans_.clear();
  extra_stores_.clear();
  for (const batch::Segment& segment : plan_.segments) {
    spans_.push_back({.block_table = tables_.data() + segment.table_begin,
                      .first_position = segment.begin,
                      .first_row = segment.first_row,
                      .rows = segment.end_chain_row() - segment.first_row});
    for (const batch::Branch& branch : plan_.branches_of(segment))
      spans_.push_back({.block_table = tables_.data() + branch.table_begin,
                        .first_position = branch.position,
                        .first_row = branch.first_row,
                        .rows = branch.num_rows});
  }
  for (const batch::ExtraStore& store : plan_.stores)
    extra_stores_.push_back({.block_table = tables_.data() + store.table_begin,
                             .first_position = store.position,
                             .first_row = store.first_row,
                             .rows = store.num_rows});
}

Result<void> Engine::sample_rows() {
  samples_.assign(plan_.logit_rows.size(), {});
  walks_.clear();
  for (const batch::Segment& segment : plan_.segments)
    if (segment.wants_logits) walks_.push_back({&segment, segment.root_row(), false});
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
    for (std::size_t i = static_cast<std::size_t>(thread); i < walks_.size(); i += threads) {
      auto sampled =
          sample_walk(walks_[i], first, first + count, logits, scratch_[static_cast<std::size_t>(thread)]);
      if (sampled) continue;
      const std::lock_guard lock(mutex);
      error = std::move(sampled);
    }
  });
  return error;
}

// Draws along one segment's drafts as far as these logit rows, [first, end), go. Runs on a worker: touches
// the state of its own sequence alone.
Result<void> Engine::sample_walk(Walk& walk, std::size_t first, std::size_t end, const float* logits,
                                 kernels::SamplingScratch& scratch) {
  const auto vocab = static_cast<std::size_t>(model_->spec().vocab);
  while (!walk.over) {
    const auto index =
        static_cast<std::size_t>(walk.segment->first_logit + walk.row - walk.segment->root_row());
    if (index < first || index >= end) break;
    RONDO_ASSIGN(const auto next, sample_row(walk, index, logits + (index - first) * vocab, scratch));
    walk.over = !next.has_value();
    walk.row = next.value_or(walk.row);
  }
  return {};
}

// Draws the token of one logit row; returns the row where the next one is drawn, if the drafts have it.
Result<std::optional<std::int32_t>> Engine::sample_row(const Walk& walk, std::size_t index,
                                                       const float* logits,
                                                       kernels::SamplingScratch& scratch) {
  Live& state = live(walk.segment->slot);
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
  if (samples_[index].finish) return std::nullopt;
  return plan_.next_row(*walk.segment, walk.row, sampled.token);
}

}  // namespace rondo::engine
