#include "rollout/dispatcher.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace rondo::rollout {
namespace {

bool is_interrupted(const Dispatcher::Job& job) {
  return job.interrupted != nullptr && job.interrupted->load(std::memory_order_relaxed);
}

timeline::KvOrigin origin_of(KvSource source) {
  switch (source) {
    case KvSource::kResident:
      return timeline::KvOrigin::kResident;
    case KvSource::kMove:
      return timeline::KvOrigin::kMoved;
    case KvSource::kRecompute:
      return timeline::KvOrigin::kRecomputed;
  }
  return timeline::KvOrigin::kResident;
}

}  // namespace

Result<std::unique_ptr<Dispatcher>> Dispatcher::create(const Config& config, Deps deps) {
  RONDO_CHECK(deps.scheduler != nullptr && deps.store != nullptr && deps.events != nullptr);
  std::unique_ptr<Dispatcher> dispatcher(new Dispatcher(config, std::move(deps)));
  for (EngineClient* instance : dispatcher->instances_)
    RONDO_TRY(dispatcher->scheduler_.add_instance(instance->spec()));
  return dispatcher;
}

Dispatcher::Dispatcher(const Config& config, Deps deps)
    : config_(config),
      scheduler_(std::move(deps.scheduler), std::move(deps.input_log), deps.clock),
      instances_(std::move(deps.instances)),
      events_(deps.events),
      store_(std::move(deps.store)),
      clock_(deps.clock),
      drafts_(deps.drafts),
      alive_(instances_.size(), true),
      pulses_(instances_.size()) {}

Result<void> Dispatcher::run(const Job& job) {
  stats_ = {};
  finish_times_.clear();
  last_instance_.clear();
  const std::int64_t recomputed = scheduler_->stats().recomputed_tokens;
  const std::int64_t begin_ns = clock_->now_ns();
  if (job.timeline != nullptr) {
    running_counter_ = job.timeline->add_counter("running responses");
    kv_counter_ = job.timeline->add_counter("KV held or reserved, %");
  }
  for (Pulse& pulse : pulses_) pulse = {.heartbeat = -1, .since_ns = begin_ns};
  Result<void> result = work(job);
  // What is left is a failed run's, or what `partial` does not want any more.
  abandon_all();
  stats_.recomputed_tokens = scheduler_->stats().recomputed_tokens - recomputed;
  finish_stats(begin_ns);
  return result;
}

Result<void> Dispatcher::work(const Job& job) {
  scheduler_.set_goal(job.goal_groups);
  for (const GroupSpec& group : job.groups) RONDO_TRY(scheduler_.add_group(group));
  while (true) {
    if (is_interrupted(job)) return fail(Code::kCancelled, "interrupted");
    RONDO_ASSIGN(const bool goes_on, assign_all());
    if (!goes_on) return {};
    prefetch();
    if (job.timeline != nullptr) watch_instances(*job.timeline);
    batch_.clear();
    events_->pop(batch_, std::chrono::milliseconds(100));
    RONDO_TRY(handle_batch(job));
    check_pulses();
  }
}

// Hands out all that can start now. False: everything is done.
Result<bool> Dispatcher::assign_all() {
  while (true) {
    const auto assignment = scheduler_->plan();
    if (assignment) {
      carry_out(*assignment);
      continue;
    }
    switch (assignment.error()) {
      case Idle::kGoalReached:
        return false;
      case Idle::kNothingWaiting:
        return scheduler_->num_in_flight() > 0;
      case Idle::kNoRoom:
        return true;
      case Idle::kNoInstance:
        return fail(Code::kUnavailable, "no inference instance is left; the last one failed: {}",
                    last_failure_);
      case Idle::kNeverFits:
        return fail(Code::kResourceExhausted,
                    "the instances that are left have too little KV memory for a response in progress; raise "
                    "engine.kv_memory");
    }
  }
}

DraftClass Dispatcher::draft_class(RequestId request) const {
  const RequestTable& table = scheduler_->requests();
  const auto slot = table.find(request);
  RONDO_CHECK(slot.has_value());
  return {.is_probe = table[*slot].is_probe, .finished_siblings = table.group_of(*slot).num_finished};
}

void Dispatcher::carry_out(const Assignment& assignment) {
  const KvPlace place = scheduler_->kv_place(assignment.request);
  for (const Eviction& eviction : assignment.evictions) evict(eviction);
  ChunkOrder order{.request = assignment.request,
                   .group = assignment.group,
                   .generated = assignment.generated,
                   .max_tokens = assignment.max_tokens,
                   .draft_class = draft_class(assignment.request),
                   .kv = fetch(assignment, place)};
  scheduler_.commit(assignment);
  if (!scheduler_->prompt_is_stored(assignment.group)) store_->drop_prompt(assignment.group);
  const auto last = last_instance_.find(assignment.request);
  const bool migrated = last != last_instance_.end() && last->second != assignment.placement.instance;
  last_instance_[assignment.request] = assignment.placement.instance;
  in_flight_[assignment.request] = {assignment, migrated, order.kv};
  client(assignment.placement.instance).run_chunk(std::move(order));
}

void Dispatcher::evict(const Eviction& eviction) {
  if (eviction.request == RequestId()) return evict_prompt(eviction);
  if (eviction.from.tier == KvTier::kInstance) {
    std::shared_ptr<Parcel> parcel;
    if (eviction.to.tier != KvTier::kNone) {
      parcel = std::make_shared<Parcel>();
      under_way_[eviction.request] = {eviction.from.instance, parcel};
      store_->put(eviction.request, parcel);
    }
    client(eviction.from.instance).hand_over(eviction.request, std::move(parcel));
  }
  if (eviction.to.tier == KvTier::kNone) {
    store_->drop(eviction.request);
  } else if (eviction.to.tier == KvTier::kDisk) {
    store_->move_to_disk(eviction.request);
  }
}

void Dispatcher::evict_prompt(const Eviction& eviction) {
  if (eviction.from.tier == KvTier::kHost) return store_->drop_prompt(eviction.group);
  EngineClient& from = client(eviction.from.instance);
  if (eviction.to.tier == KvTier::kHost) {
    auto parcel = std::make_shared<Parcel>();
    prompts_under_way_[eviction.group] = {eviction.from.instance, parcel};
    store_->put_prompt(eviction.group, parcel);
    from.group_order({.kind = GroupOrder::Kind::kCopyPrompt, .group = eviction.group, .parcel = parcel});
  }
  from.group_order({.kind = GroupOrder::Kind::kDropPrompt, .group = eviction.group});
}

// While instances work: a chunk then starts from memory.
void Dispatcher::prefetch() {
  while (const auto prefetch = scheduler_->plan_prefetch(config_.prefetch_responses)) {
    for (const Eviction& move : prefetch->moves) {
      if (move.request == RequestId()) {
        evict_prompt(move);
      } else if (move.to.tier == KvTier::kDisk) {
        store_->move_to_disk(move.request);
      } else {
        store_->prefetch(move.request);
      }
    }
    scheduler_.commit(config_.prefetch_responses, *prefetch);
  }
}

// The KV that the assignment's chunk starts from, where it does not lie there already: the request's own, or
// of its prompt from the host or an instance that has run a sibling. What the store has of a request is used
// up with this, whatever becomes of it.
std::shared_ptr<const Parcel> Dispatcher::fetch(const Assignment& assignment, const KvPlace& place) {
  const Placement& placement = assignment.placement;
  if (place.tier == KvTier::kNone) {
    if (placement.source != KvSource::kMove) return nullptr;
    if (placement.from.tier == KvTier::kHost) return store_->prompt(assignment.group);
    auto prompt = std::make_shared<Parcel>();
    under_way_[assignment.request] = {placement.from.instance, prompt};
    client(placement.from.instance)
        .group_order({.kind = GroupOrder::Kind::kCopyPrompt, .group = assignment.group, .parcel = prompt});
    return prompt;
  }
  if (place.tier != KvTier::kInstance) {
    if (placement.source == KvSource::kMove) return store_->take(assignment.request);
    store_->drop(assignment.request);
    return nullptr;
  }
  if (place.instance == placement.instance) return nullptr;
  std::shared_ptr<Parcel> parcel;
  if (placement.source == KvSource::kMove) {
    parcel = std::make_shared<Parcel>();
    under_way_[assignment.request] = {place.instance, parcel};
  }
  client(place.instance).hand_over(assignment.request, parcel);
  return parcel;
}

// After an error the rest matters only where an instance has failed.
Result<void> Dispatcher::handle_batch(const Job& job) {
  Result<void> result;
  for (const InstanceEvent& event : batch_) {
    if (result && is_interrupted(job)) result = fail(Code::kCancelled, "interrupted");
    if (result || event.kind == InstanceEvent::Kind::kFailed) {
      Result<void> handled = handle(event, job);
      if (!handled) result = std::move(handled);
    }
  }
  return result;
}

Result<void> Dispatcher::handle(const InstanceEvent& event, const Job& job) {
  if (!alive_[static_cast<std::size_t>(event.instance.value())]) return {};
  if (event.kind == InstanceEvent::Kind::kFailed) {
    fail_instance(event.instance, event.failure);
    return {};
  }
  if (event.kind == InstanceEvent::Kind::kError) return fail(Code::kInvalidArgument, "{}", event.failure);
  const auto it = in_flight_.find(event.request);
  if (it == in_flight_.end() || it->second.assignment.placement.instance != event.instance) return {};
  record(it->second, event, job.timeline);
  const GroupId group = it->second.assignment.group;
  const std::int32_t generated = it->second.assignment.generated;
  in_flight_.erase(it);
  if (event.kind == InstanceEvent::Kind::kChunkDone) {
    scheduler_.chunk_done(event.request, event.total_tokens - generated);
    return {};
  }
  scheduler_.finished(event.request, event.total_tokens);
  under_way_.erase(event.request);
  finish_times_.push_back(event.end_ns);
  if (!scheduler_->requests().find(group)) group_over(group);
  return job.finished ? job.finished(event.request) : Result<void>{};
}

void Dispatcher::record(const Flight& flight, const InstanceEvent& event, timeline::Recorder* timeline) {
  const Assignment& assignment = flight.assignment;
  ++stats_.chunks;
  stats_.migrations += flight.migrated ? 1 : 0;
  if (flight.kv != nullptr && flight.kv->ready() && flight.kv->image() != nullptr)
    stats_.migrated_bytes += static_cast<std::int64_t>(flight.kv->image()->bytes.size());
  under_way_.erase(event.request);
  if (timeline == nullptr) return;
  timeline->chunk({.request = event.request,
                   .group = assignment.group,
                   .instance = event.instance,
                   .begin_ns = event.begin_ns,
                   .end_ns = event.end_ns,
                   .begin_tokens = assignment.generated,
                   .end_tokens = event.total_tokens,
                   .origin = origin_of(assignment.placement.source),
                   .migrated = flight.migrated,
                   .finished = event.kind == InstanceEvent::Kind::kFinished});
}

// What the scheduler knows of each instance now: it changes only when chunks begin or end.
void Dispatcher::watch_instances(timeline::Recorder& timeline) const {
  const std::int64_t now = clock_->now_ns();
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    const InstanceId id(static_cast<std::int32_t>(i));
    const bool alive = alive_[i];
    timeline.set(running_counter_, id, now, alive ? scheduler_->num_in_flight(id) : 0);
    const auto blocks = static_cast<double>(instances_[i]->spec().num_blocks);
    const double held = alive ? blocks - static_cast<double>(scheduler_->ledger().free_blocks(id)) : 0.0;
    timeline.set(kv_counter_, id, now, 100.0 * held / blocks);
  }
}

// Its chunks wait again, with what their responses had at the last boundary. KV that was to come from it
// never will.
void Dispatcher::fail_instance(InstanceId id, const std::string& why) {
  log::error("inference instance {} failed: {}; its responses go on elsewhere", id, why);
  last_failure_ = why;
  ++stats_.failed_instances;
  alive_[static_cast<std::size_t>(id.value())] = false;
  client(id).abandon();
  const auto give_up = [id](auto& origins) {
    for (auto& [key, origin] : origins) {
      if (origin.instance != id) continue;
      if (const auto parcel = origin.parcel.lock()) parcel->fill(nullptr);
    }
  };
  give_up(under_way_);
  give_up(prompts_under_way_);
  for (const RequestId request : scheduler_.instance_failed(id)) in_flight_.erase(request);
  drop_lost();
}

// What the scheduler does not count on any more, the store does not keep: some of it may just have come.
void Dispatcher::drop_lost() {
  for (const auto& [request, origin] : under_way_) {
    if (scheduler_->kv_place(request) == KvPlace{}) store_->drop(request);
  }
  for (const auto& [group, origin] : prompts_under_way_) {
    if (!scheduler_->prompt_is_stored(group)) store_->drop_prompt(group);
  }
}

void Dispatcher::check_pulses() {
  if (config_.instance_timeout_s == 0) return;
  const std::int64_t now = clock_->now_ns();
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    const InstanceId id(static_cast<std::int32_t>(i));
    if (!alive_[i]) continue;
    Pulse& pulse = pulses_[i];
    const std::int64_t heartbeat = instances_[i]->heartbeat();
    if (heartbeat != pulse.heartbeat || scheduler_->num_in_flight(id) == 0) pulse = {heartbeat, now};
    if (now - pulse.since_ns > std::int64_t{config_.instance_timeout_s} * 1'000'000'000) {
      fail_instance(id,
                    fmt::format("no step for {} s (rollout.instance_timeout_s)", config_.instance_timeout_s));
    }
  }
}

void Dispatcher::group_over(GroupId group) {
  groups_over_.push_back(group);
  store_->drop_prompt(group);
  prompts_under_way_.erase(group);
  if (drafts_ != nullptr) drafts_->remove_group(group);
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    if (alive_[i]) instances_[i]->group_order({.kind = GroupOrder::Kind::kForget, .group = group});
  }
}

void Dispatcher::abandon_all() {
  std::vector<GroupId> groups;
  for (const auto& [group, slot] : scheduler_->requests().groups()) groups.push_back(group);
  for (const RequestId request : scheduler_.abandon()) {
    for (std::size_t i = 0; i < instances_.size(); ++i) {
      if (alive_[i]) instances_[i]->hand_over(request, nullptr);
    }
  }
  for (const GroupId group : groups) group_over(group);
  in_flight_.clear();
  under_way_.clear();
  prompts_under_way_.clear();
  store_->clear();
  settle();
  // A draft client that had not heard of it yet may have registered a group again.
  for (const GroupId group : groups_over_)
    if (drafts_ != nullptr) drafts_->remove_group(group);
  groups_over_.clear();
}

void Dispatcher::settle() {
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    if (alive_[i]) instances_[i]->settle();
  }
}

void Dispatcher::new_policy_version() {
  scheduler_.new_policy_version();
  store_->clear();
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    if (alive_[i]) instances_[i]->drop_kv();
  }
  settle();
}

void Dispatcher::finish_stats(std::int64_t begin_ns) {
  if (finish_times_.empty()) return;
  std::ranges::sort(finish_times_);
  const std::int64_t end = finish_times_.back();
  stats_.seconds = static_cast<double>(end - begin_ns) * 1e-9;
  stats_.tail_seconds = static_cast<double>(end - timeline::tail_begin(finish_times_, begin_ns)) * 1e-9;
}

}  // namespace rondo::rollout
