#include "sim/simulation.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "kv/block_pool.h"
#include "sim/event_hash.h"
#include "sim/instance.h"

namespace rondo::sim {
namespace {

timeline::KvOrigin origin_of(rollout::KvSource source) {
  switch (source) {
    case rollout::KvSource::kResident:
      return timeline::KvOrigin::kResident;
    case rollout::KvSource::kMove:
      return timeline::KvOrigin::kMoved;
    case rollout::KvSource::kRecompute:
      return timeline::KvOrigin::kRecomputed;
  }
  RONDO_CHECK(false);
}

/// The event loop. Lives for one rollout.
class Simulation final {
 public:
  Simulation(const ClusterSpec& cluster, const RolloutSpec& rollout, Recording* recording)
      : cluster_(cluster), rollout_(rollout), recording_(recording) {}

  Result<Outcome> run();

 private:
  struct Event {
    double time = 0.0;
    std::int32_t instance = 0;
    std::uint32_t epoch = 0;
    bool operator>(const Event& other) const {
      return std::pair(time, instance) > std::pair(other.time, other.instance);
    }
  };
  struct GroupState {
    RequestIndex first = 0;
    std::int32_t size = 0;
    std::int32_t finished = 0;
    std::int64_t tokens = 0;  // of finished samples
  };

  Result<void> start();
  Result<void> make_scheduler();
  Result<void> add_instances();
  Result<void> add_groups();
  void assign_all();
  void carry_out(const rollout::Assignment& assignment);
  double start_time(const rollout::Assignment& assignment);
  void count_evictions(const rollout::Assignment& assignment);
  std::int32_t prompt_tokens(GroupId group) const;
  bool next_event();
  void report_stop(RequestIndex request);
  void finish(RequestIndex request);
  void touch(std::int32_t instance);
  void retime_touched();
  void mark(const MarkedEvent& event) { hash_.add(now_, event); }
  void check_invariants() const;
  template <class Input>
  void log(Input input) {
    if (recording_ == nullptr || !recording_->logs_inputs) return;
    recording_->inputs.push_back({.time_ns = as_ns(now_), .input = std::move(input)});
  }
  Outcome outcome();
  void count_unfinished(Outcome& outcome) const;
  bool chunked() const { return scheduler_->rules().dispatch == rollout::Dispatch::kChunks; }
  RequestState& at(RequestIndex request) { return requests_[static_cast<std::size_t>(request)]; }
  Instance& instance(std::int32_t index) { return instances_[static_cast<std::size_t>(index)]; }

  const ClusterSpec& cluster_;
  const RolloutSpec& rollout_;
  Recording* recording_;
  std::unique_ptr<rollout::Scheduler> scheduler_;
  std::vector<RequestState> requests_;
  std::vector<GroupState> groups_;
  std::vector<Instance> instances_;
  std::vector<double> link_free_s_;  // per instance, of what it receives
  std::vector<std::uint32_t> epochs_;
  std::vector<std::int32_t> touched_;
  std::vector<bool> is_touched_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::int64_t> finish_ns_;
  double now_ = 0.0;
  double migrated_bytes_ = 0.0;
  double evicted_bytes_ = 0.0;
  std::int64_t tokens_ = 0;
  EventHash hash_;
  SteadyClock clock_;
  std::int64_t decision_ns_ = 0;
};

Result<void> Simulation::make_scheduler() {
  const double block = cluster_.engine.kv_bytes_per_token() * kv::kBlockTokens;
  const auto blocks = [&](double bytes) {
    return static_cast<std::int64_t>(bytes / block) * cluster_.instances;
  };
  const std::int32_t draft_room = cluster_.speculates ? cluster_.drafts.max_gamma : 0;
  RONDO_ASSIGN(scheduler_, rollout::Scheduler::create(cluster_.schedule,
                                                      {.host_blocks = blocks(cluster_.host_kv_bytes),
                                                       .disk_blocks = blocks(cluster_.disk_kv_bytes),
                                                       .draft_room_tokens = draft_room},
                                                      rollout_.prior));
  return {};
}

Result<void> Simulation::add_instances() {
  const auto count = static_cast<std::size_t>(cluster_.instances);
  const std::int64_t blocks = cluster_.engine.kv_tokens() / kv::kBlockTokens;
  if (blocks == 0) {
    return fail(Code::kResourceExhausted, "engine.kv_tokens is {}; at least {} are needed",
                cluster_.engine.kv_tokens(), kv::kBlockTokens);
  }
  const Instance::Limits limits{
      .preempts = !chunked(), .max_running = cluster_.max_running, .watermark = cluster_.watermark};
  std::optional<rollout::StepCost> cost;
  if (cluster_.speculates) {
    RONDO_ASSIGN(cost, cluster_.engine.as_profile(cluster_.drafts.max_gamma));
  }
  instances_.reserve(count);
  for (std::int32_t i = 0; i < cluster_.instances; ++i) {
    const rollout::InstanceSpec spec{
        .id = InstanceId(i), .num_blocks = blocks, .max_running = cluster_.max_running};
    RONDO_TRY(scheduler_->add_instance(spec));
    log(rollout::InstanceAdded{spec});
    instances_.emplace_back(i, cluster_.engine, limits, requests_, recording_);
    if (!cost) continue;
    const std::uint64_t seed = rollout_.seed * 1000003 + static_cast<std::uint64_t>(i);
    instances_.back().draft_with(Drafting(cluster_.drafts, *cost, cluster_.gain, seed));
  }
  link_free_s_.assign(count, 0.0);
  epochs_.assign(count, 0);
  is_touched_.assign(count, false);
  return {};
}

Result<void> Simulation::add_groups() {
  for (const rollout::GroupSpec& group : rollout_.groups) {
    RONDO_TRY(scheduler_->add_group(group));
    log(rollout::GroupAdded{group});
    const auto index = static_cast<std::int32_t>(groups_.size());
    groups_.push_back({.first = static_cast<RequestIndex>(requests_.size()),
                       .size = static_cast<std::int32_t>(group.samples.size())});
    for (const rollout::SampleSpec& sample : group.samples) {
      const bool is_probe = requests_.size() == static_cast<std::size_t>(groups_.back().first);
      requests_.push_back({.group = index,
                           .prompt_tokens = group.prompt_tokens,
                           .length = sample.true_tokens,
                           .lane = static_cast<std::uint8_t>(cluster_.speculates ? lane_of(is_probe, 0) : 0),
                           .is_probe = is_probe});
    }
  }
  finish_ns_.reserve(requests_.size());
  return {};
}

Result<void> Simulation::start() {
  RONDO_TRY(make_scheduler());
  RONDO_TRY(add_instances());
  RONDO_TRY(add_groups());
  if (rollout_.goal > 0) {
    scheduler_->set_goal(rollout_.goal);
    log(rollout::GoalSet{rollout_.goal});
  }
  return {};
}

Result<Outcome> Simulation::run() {
  RONDO_TRY(start());
  do {
    assign_all();
    retime_touched();
    if (rollout_.checks) check_invariants();
  } while (next_event());
  const rollout::Idle idle = scheduler_->plan().error();
  if (idle != rollout::Idle::kNothingWaiting && idle != rollout::Idle::kGoalReached) {
    return fail(Code::kResourceExhausted, "the rollout stopped at {:.0f} s with {} responses waiting: {}",
                now_, scheduler_->num_waiting(), rollout::idle_name(idle));
  }
  return outcome();
}

void Simulation::assign_all() {
  for (;;) {
    const std::int64_t begin = clock_.now_ns();
    const auto next = scheduler_->plan();
    if (!next) {
      decision_ns_ += clock_.now_ns() - begin;
      return;
    }
    count_evictions(*next);
    scheduler_->commit(*next);
    decision_ns_ += clock_.now_ns() - begin;
    log(rollout::Assigned{*next});
    carry_out(*next);
  }
}

void Simulation::carry_out(const rollout::Assignment& assignment) {
  const auto request = static_cast<RequestIndex>(assignment.request.value());
  const std::int32_t index = assignment.placement.instance.value();
  mark({Mark::kAssigned, request, index, assignment.max_tokens});
  RequestState& state = at(request);
  state.chunk_end = std::min(state.length, state.generated + assignment.max_tokens);
  state.origin = origin_of(assignment.placement.source);
  if (chunked()) {
    const double start = start_time(assignment);
    instance(index).deliver(request, now_, start, assignment.placement.cached_tokens);
  } else {
    instance(index).enqueue(request, now_);
  }
  touch(index);
}

// Moves to an instance follow each other on its links; what runs there goes on meanwhile.
double Simulation::start_time(const rollout::Assignment& assignment) {
  const double start = now_ + cluster_.chunk_overhead_s;
  const rollout::Placement& placement = assignment.placement;
  if (placement.source != rollout::KvSource::kMove) return start;
  const Device& device = cluster_.engine.device();
  const rollout::KvTier tier = placement.from.tier;
  const double link = tier == rollout::KvTier::kInstance ? device.rdma_bandwidth
                      : tier == rollout::KvTier::kHost   ? device.host_bandwidth
                                                         : device.disk_bandwidth;
  const double bytes = placement.moved_tokens * cluster_.engine.kv_bytes_per_token();
  const auto to = static_cast<std::size_t>(placement.instance.value());
  const double begin = std::max(now_, link_free_s_[to]);
  link_free_s_[to] = begin + bytes / (link * cluster_.engine.num_devices());
  migrated_bytes_ += bytes;
  mark({Mark::kMoved, assignment.request.value(), placement.moved_tokens, static_cast<std::int64_t>(tier)});
  return std::max(start, link_free_s_[to]);
}

void Simulation::count_evictions(const rollout::Assignment& assignment) {
  for (const rollout::Eviction& eviction : assignment.evictions) {
    const bool stored =
        eviction.from.tier == rollout::KvTier::kInstance && eviction.to.tier != rollout::KvTier::kNone;
    if (!stored) continue;
    const std::int32_t tokens = eviction.request == RequestId()
                                    ? prompt_tokens(eviction.group)
                                    : at(static_cast<RequestIndex>(eviction.request.value())).context();
    evicted_bytes_ += (tokens - 1) * cluster_.engine.kv_bytes_per_token();
  }
}

std::int32_t Simulation::prompt_tokens(GroupId group) const {
  const rollout::RequestTable& table = scheduler_->requests();
  return table[*table.find(group)].prompt_tokens;
}

void Simulation::touch(std::int32_t index) {
  const auto i = static_cast<std::size_t>(index);
  if (is_touched_[i]) return;
  is_touched_[i] = true;
  touched_.push_back(index);
}

void Simulation::retime_touched() {
  for (const std::int32_t index : touched_) {
    const auto i = static_cast<std::size_t>(index);
    is_touched_[i] = false;
    ++epochs_[i];
    instances_[i].retime(now_);
    if (instances_[i].next_event_s() < std::numeric_limits<double>::infinity()) {
      events_.push({instances_[i].next_event_s(), index, epochs_[i]});
    }
  }
  touched_.clear();
}

bool Simulation::next_event() {
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    if (epochs_[static_cast<std::size_t>(event.instance)] != event.epoch) continue;  // overtaken
    if (rollout_.goal > 0 && scheduler_->stats().finished_groups >= rollout_.goal) return false;
    now_ = event.time;
    const Instance::Happened happened = instance(event.instance).run_to(now_);
    touch(event.instance);
    if (happened.event == Instance::Event::kChunkEnd) {
      report_stop(happened.request);
    } else {
      const bool arrived = happened.event == Instance::Event::kArrival;
      mark({arrived ? Mark::kArrived : Mark::kPreempted, happened.request, event.instance});
    }
    return true;
  }
  return false;
}

void Simulation::report_stop(RequestIndex request) {
  const RequestState& state = at(request);
  if (state.generated == state.length) {
    finish(request);
    return;
  }
  const auto slot = scheduler_->requests().find(RequestId(request));
  RONDO_CHECK(slot.has_value());
  const std::int32_t new_tokens = state.generated - scheduler_->requests()[*slot].generated;
  mark({Mark::kChunkDone, request, new_tokens});
  log(rollout::ChunkDone{RequestId(request), new_tokens});
  const std::int64_t begin = clock_.now_ns();
  scheduler_->chunk_done(RequestId(request), new_tokens);
  decision_ns_ += clock_.now_ns() - begin;
}

void Simulation::finish(RequestIndex request) {
  const RequestState& state = at(request);
  mark({Mark::kFinished, request, state.length});
  log(rollout::RequestFinished{RequestId(request), state.length});
  const std::int64_t begin = clock_.now_ns();
  scheduler_->finished(RequestId(request), state.length);
  decision_ns_ += clock_.now_ns() - begin;
  finish_ns_.push_back(as_ns(now_));
  GroupState& group = groups_[static_cast<std::size_t>(state.group)];
  ++group.finished;
  group.tokens += state.length;
  if (group.finished == group.size) tokens_ += group.tokens;
  if (!cluster_.speculates) return;
  for (RequestIndex r = group.first; r < group.first + group.size; ++r) {
    RequestState& sibling = at(r);
    const auto lane = static_cast<std::uint8_t>(lane_of(sibling.is_probe, group.finished));
    if (lane == sibling.lane || r == request) continue;
    if (sibling.instance < 0) {
      sibling.lane = lane;
      continue;
    }
    instance(sibling.instance).change_lane(r, lane, now_);
    touch(sibling.instance);
  }
}

void Simulation::check_invariants() const {
  scheduler_->check_invariants();
  for (const Instance& each : instances_) each.check_invariants();
}

void Simulation::count_unfinished(Outcome& outcome) const {
  for (const GroupState& group : groups_) {
    if (group.finished == group.size) continue;
    for (RequestIndex r = group.first; r < group.first + group.size; ++r) {
      outcome.unfinished_tokens += requests_[static_cast<std::size_t>(r)].generated;
    }
  }
}

Outcome Simulation::outcome() {
  const rollout::Scheduler::Stats& stats = scheduler_->stats();
  Outcome result{.seed = rollout_.seed,
                 .total_s = now_,
                 .tail_s = 1e-9 * static_cast<double>(as_ns(now_) - timeline::tail_begin(finish_ns_, 0)),
                 .responses = std::ssize(finish_ns_),
                 .tokens = tokens_,
                 .recomputed_tokens = stats.recomputed_tokens,
                 .migrations = stats.moves,
                 .migrated_bytes = migrated_bytes_,
                 .evicted_bytes = evicted_bytes_,
                 .chunks = stats.assignments,
                 .event_hash = hash_.value()};
  double busy = 0.0, running = 0.0, generated = 0.0;
  double first = now_, last = 0.0;  // instance to end
  for (Instance& each : instances_) {
    each.stop(now_);
    const Instance::Stats& s = each.stats();
    busy += s.busy_s;
    running += s.running_s;
    first = std::min(first, s.last_busy_s);
    last = std::max(last, s.last_busy_s);
    generated += s.tokens;
    result.request_steps += s.request_steps;
    result.preemptions += s.preemptions;
    result.recomputed_tokens += s.recomputed_tokens;
    result.events += s.events;
  }
  count_unfinished(result);
  // Busy throughout, the sum of an instance's times may exceed the whole by rounding.
  result.idle_share = std::max(0.0, 1.0 - busy / (now_ * static_cast<double>(instances_.size())));
  result.mean_running = running / busy;
  result.finish_spread = (last - first) / now_;
  result.accept_length = generated / result.request_steps;
  result.decision_us = 1e-3 * static_cast<double>(decision_ns_) /
                       static_cast<double>(std::max<std::int64_t>(1, stats.assignments));
  return result;
}

}  // namespace

Result<Outcome> simulate(const ClusterSpec& cluster, const RolloutSpec& rollout, Recording* recording) {
  const SteadyClock clock;
  const double begin = clock.now_s();
  Simulation simulation(cluster, rollout, recording);
  RONDO_ASSIGN(Outcome outcome, simulation.run());
  outcome.wall_s = clock.now_s() - begin;
  return outcome;
}

}  // namespace rondo::sim
