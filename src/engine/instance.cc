#include "engine/instance.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace rondo::engine {

using rollout::InstanceEvent;

Result<std::unique_ptr<Instance>> Instance::create(InstanceId id, const Engine::Config& config, Deps deps) {
  RONDO_CHECK(deps.responses != nullptr && deps.events != nullptr && deps.clock != nullptr);
  RONDO_ASSIGN(auto engine, Engine::create(config, *deps.model, deps.tokenizer, deps.context));
  const rollout::InstanceSpec spec{
      .id = id, .num_blocks = engine->num_blocks(), .max_running = config.batch.max_running};
  std::unique_ptr<Instance> instance(new Instance(spec, std::move(engine), std::move(deps)));
  instance->settle();  // its thread has looked at the engine and rests: others may use it now
  return instance;
}

Instance::Instance(const rollout::InstanceSpec& spec, std::unique_ptr<Engine> engine, Deps deps)
    : spec_(spec), engine_(std::move(engine)), deps_(std::move(deps)) {
  if (deps_.drafting != nullptr) {
    engine_->set_drafter(
        [drafting = deps_.drafting.get()](std::span<const DraftContext> contexts, batch::Drafts& drafts) {
          drafting->propose(contexts, drafts);
        });
  }
  thread_ = std::thread([this] { loop(); });
}

Instance::~Instance() {
  {
    const std::lock_guard lock(inbox_mutex_);
    stopping_ = true;
  }
  inbox_filled_.notify_one();
  thread_.join();
}

void Instance::send(Command command) {
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.push_back(std::move(command));
  }
  inbox_filled_.notify_one();
}

void Instance::settle() {
  std::unique_lock lock(inbox_mutex_);
  settled_.wait(lock, [this] { return resting_ && (inbox_.empty() || failed_); });
}

void Instance::abandon() {
  const std::lock_guard lock(publish_mutex_);
  abandoned_ = true;
}

bool Instance::is_abandoned() const {
  const std::lock_guard lock(publish_mutex_);
  return abandoned_;
}

batch::Planner::Stats Instance::stats() const {
  const std::lock_guard lock(publish_mutex_);
  return published_stats_;
}

Drafting::Stats Instance::draft_stats() const {
  const std::lock_guard lock(publish_mutex_);
  return published_draft_stats_;
}

void Instance::loop() {
  while (take_commands()) {
    Result<void> result;
    try {
      result = work();
    } catch (const std::exception& e) {
      result = fail(Code::kInternal, "{}", e.what());
    }
    if (result) continue;
    report_failure(result.error());
    const std::lock_guard lock(inbox_mutex_);
    resting_ = failed_ = true;
    settled_.notify_all();
    return;
  }
}

// Numbers that are not finite come from the weights: no other instance would do better.
void Instance::report_failure(const Status& status) {
  const std::lock_guard lock(publish_mutex_);
  if (abandoned_) return;
  const bool everywhere = status.code() == Code::kNumeric;
  deps_.events->push({.kind = everywhere ? InstanceEvent::Kind::kError : InstanceEvent::Kind::kFailed,
                      .instance = spec_.id,
                      .failure = status.to_string()});
}

// Waits while there is nothing to do; KV that is on its way is looked for now and then. False: stop.
bool Instance::take_commands() {
  std::unique_lock lock(inbox_mutex_);
  const auto wanted = [this] { return stopping_ || !inbox_.empty(); };
  if (engine_->idle()) {
    if (awaiting_kv_.empty()) {
      resting_ = true;
      settled_.notify_all();
      inbox_filled_.wait(lock, wanted);
      resting_ = false;
    } else {
      inbox_filled_.wait_for(lock, std::chrono::microseconds(200), wanted);
    }
  }
  std::swap(commands_, inbox_);
  return !stopping_;
}

Result<void> Instance::work() {
  if (is_abandoned()) return fail(Code::kCancelled, "abandoned");
  for (Command& command : commands_) carry_out(command);
  commands_.clear();
  start_arrived();
  heartbeat_.fetch_add(1, std::memory_order_relaxed);
  if (engine_->idle()) return {};
  if (deps_.before_step) RONDO_TRY(deps_.before_step(heartbeat()));
  finished_.clear();
  RONDO_TRY(engine_->step(finished_));
  learn();
  report();
  return {};
}

void Instance::carry_out(Command& command) {
  if (auto* order = std::get_if<rollout::ChunkOrder>(&command)) {
    if (must_wait(*order, awaiting_kv_)) {
      awaiting_kv_.push_back(std::move(*order));
    } else {
      start(*order);
    }
  } else if (const auto* hand_over = std::get_if<HandOver>(&command)) {
    hand_over_now(*hand_over);
  } else if (const auto* group = std::get_if<rollout::GroupOrder>(&command)) {
    serve_group(*group);
  } else {
    engine_->drop_kv();
    if (deps_.drafting != nullptr) deps_.drafting->drop_all();
  }
}

// Until its KV is there. A request that is new here and was sent none will share its prompt with a sibling
// whose KV is under way.
bool Instance::must_wait(const rollout::ChunkOrder& order, std::span<const rollout::ChunkOrder> ahead) const {
  if (order.kv != nullptr) return !order.kv->ready();
  if (engine_->is_live(order.request) || engine_->has_prompt(order.group)) return false;
  return std::ranges::any_of(ahead, [&](const auto& other) { return other.group == order.group; });
}

void Instance::start_arrived() {
  std::vector<rollout::ChunkOrder> waiting;
  for (rollout::ChunkOrder& order : awaiting_kv_) {
    if (must_wait(order, waiting)) {
      waiting.push_back(std::move(order));
    } else {
      start(order);
    }
  }
  awaiting_kv_ = std::move(waiting);
}

// A request that is parked here goes on; any other one is new to this engine.
void Instance::start(const rollout::ChunkOrder& order) {
  began_ns_[order.request] = deps_.clock->now_ns();
  if (deps_.drafting != nullptr) deps_.drafting->begin(order.request, order.group, order.draft_class);
  if (engine_->resume(order.request, order.max_tokens)) return;
  Request request = deps_.responses->request(order.request);
  request.chunk_tokens = order.max_tokens;
  request.keep_prompt = true;  // the scheduler counts on it, and says when it need not be
  if (order.kv != nullptr && order.kv->image() != nullptr) request.stored.push_back(order.kv->image());
  if (const Result<void> submitted = engine_->submit(std::move(request)); !submitted) {
    began_ns_.erase(order.request);
    deps_.events->push({.kind = InstanceEvent::Kind::kError,
                        .instance = spec_.id,
                        .request = order.request,
                        .failure = submitted.error().message()});
  }
}

void Instance::hand_over_now(const HandOver& order) {
  if (order.parcel != nullptr) order.parcel->fill(engine_->export_kv(order.request, 0));
  engine_->cancel(order.request);
  began_ns_.erase(order.request);
  std::erase_if(awaiting_kv_, [&order](const auto& waiting) { return waiting.request == order.request; });
}

void Instance::serve_group(const rollout::GroupOrder& order) {
  using Kind = rollout::GroupOrder::Kind;
  if (order.kind == Kind::kCopyPrompt) {
    order.parcel->fill(engine_->export_prompt(order.group));
    return;
  }
  engine_->drop_prompt(order.group);
  if (order.kind == Kind::kForget && deps_.drafting != nullptr) deps_.drafting->forget_group(order.group);
}

void Instance::learn() {
  if (deps_.drafting == nullptr) return;
  deps_.drafting->observe(engine_->verdicts());
  for (const Response& response : finished_)
    deps_.drafting->end(response.id, response.group, response.tokens);
}

void Instance::report() {
  const std::lock_guard lock(publish_mutex_);
  published_stats_ = engine_->stats();
  if (deps_.drafting != nullptr) published_draft_stats_ = deps_.drafting->stats();
  if (abandoned_) return;
  for (Response& response : finished_) {
    report_end(InstanceEvent::Kind::kFinished, response.id,
               static_cast<std::int32_t>(response.tokens.size()));
    deps_.responses->finish(std::move(response));
  }
  for (const batch::Planner::Parked& parked : engine_->parked()) {
    report_end(InstanceEvent::Kind::kChunkDone, parked.id, parked.num_response);
    deps_.responses->extend(parked.id, engine_->progress(parked.id));
  }
  deps_.events->push(events_);
}

void Instance::report_end(InstanceEvent::Kind kind, RequestId request, std::int32_t total_tokens) {
  const auto began = began_ns_.extract(request);
  events_.push_back({.kind = kind,
                     .instance = spec_.id,
                     .request = request,
                     .total_tokens = total_tokens,
                     .begin_ns = began.mapped(),
                     .end_ns = deps_.clock->now_ns()});
}

}  // namespace rondo::engine
