#include "sim/instance.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/check.h"
#include "kv/block_pool.h"
#include "kv/prefix.h"

namespace rondo::sim {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Engines allocate KV by blocks of about 16 tokens, of which half of the last is empty. An admission leaves
// the other half to each running response, or it would be undone at once.
constexpr double kBlockWaste = 8.0;
constexpr double kAdmissionRoom = 8.0;

// Of the request's prompt, the tokens in blocks that it shares with its siblings.
double shared_tokens(const RequestState& request) {
  return static_cast<double>(kv::SharedPrefix(request.prompt_tokens).full_blocks * kv::kBlockTokens);
}

}  // namespace

Instance::Instance(std::int32_t index, const EngineModel& engine, const Limits& limits,
                   std::vector<RequestState>& requests, Recording* recording)
    : index_(index), engine_(&engine), limits_(limits), requests_(&requests), recording_(recording) {}

void Instance::deliver(RequestIndex request, double now, double start_s, std::int32_t cached) {
  advance(now);
  (*requests_)[static_cast<std::size_t>(request)].instance = index_;
  if (start_s <= now) {
    begin(request, cached);
    return;
  }
  arrivals_.push_back({start_s, request, cached});
  std::ranges::push_heap(arrivals_, std::greater{});
}

void Instance::enqueue(RequestIndex request, double now) {
  advance(now);
  (*requests_)[static_cast<std::size_t>(request)].instance = index_;
  queue_.push_back(request);
}

void Instance::change_lane(RequestIndex request, std::uint8_t lane, double now) {
  advance(now);
  RequestState& state = (*requests_)[static_cast<std::size_t>(request)];
  if (!state.running) {
    state.lane = lane;
    return;
  }
  leave_lane(state);
  enter_lane(request, lane);
}

void Instance::begin(RequestIndex request, std::int32_t cached) {
  RequestState& state = (*requests_)[static_cast<std::size_t>(request)];
  const double prefill = engine_->prefill_s(state.context() - cached, cached);
  synced_ += prefill;
  stats_.busy_s += prefill;
  state.running = true;
  state.begun = synced_;
  state.done = state.generated;
  ++running_;
  kv_tokens_ += state.context();
  if (siblings_[state.group]++ > 0) shared_tokens_ += shared_tokens(state);
  enter_lane(request, state.lane);
  if (limits_.preempts) admitted_.push_back(request);
}

// The engine computes a group's prompt once while one of its samples runs there, but for its last position.
std::int32_t Instance::prompt_of_siblings(const RequestState& request) const {
  return siblings_.contains(request.group) ? kv::SharedPrefix(request.prompt_tokens).num_tokens : 0;
}

void Instance::enter_lane(RequestIndex request, std::uint8_t lane) {
  RequestState& state = (*requests_)[static_cast<std::size_t>(request)];
  Lane& to = lanes_[lane];
  state.lane = lane;
  state.entered = to.clock;
  ++state.stamp;
  to.heap.push_back({to.clock + (state.chunk_end - state.done), request, state.stamp});
  std::ranges::push_heap(to.heap, std::greater{});
  ++counts_[lane];
  changed_ = true;
}

// Brings `done` up to date.
void Instance::leave_lane(RequestState& request) {
  request.done += lanes_[request.lane].clock - request.entered;
  --counts_[request.lane];
  ++request.stamp;
  changed_ = true;
}

double Instance::cost(double steps) const {
  return steps * (step_.seconds(kv_tokens_) + 0.5 * step_.per_kv_token_s * growth_ * steps);
}

// The inverse of cost().
double Instance::steps_within(double seconds) const {
  const double linear = step_.seconds(kv_tokens_);
  const double square = 0.5 * step_.per_kv_token_s * growth_;
  return 2.0 * seconds / (linear + std::sqrt(linear * linear + 4.0 * square * seconds));
}

void Instance::do_steps(double steps, double until) {
  for (std::size_t lane = 0; lane < kNumLanes; ++lane) {
    if (counts_[lane] > 0) lanes_[lane].clock += steps * (drafting_ ? drafting_->rate(lane) : 1.0);
  }
  kv_tokens_ += steps * growth_;
  stats_.request_steps += steps * running_;
  stats_.tokens += steps * growth_;
  stats_.running_s += (until - synced_) * running_;
  stats_.busy_s += until - synced_;
  stats_.last_busy_s = until;
  steps_since_plan_ += steps;
  synced_ = until;
}

void Instance::advance(double now) {
  if (now <= synced_) return;
  if (running_ == 0) {
    synced_ = now;
    return;
  }
  RONDO_CHECK(!changed_);
  do_steps(steps_within(now - synced_), now);
}

void Instance::replan() {
  if (drafting_) {
    const auto context = static_cast<std::int32_t>(kv_tokens_ / running_);
    auto* log =
        recording_ != nullptr && recording_->logs_inputs && index_ == 0 ? &recording_->draft_inputs : nullptr;
    const bool planned = drafting_->replan(counts_, context, steps_since_plan_, log);
    steps_since_plan_ = 0.0;
    if (!planned && !changed_) return;
  } else if (!changed_) {
    return;
  }
  growth_ = 0.0;
  for (std::size_t lane = 0; lane < kNumLanes; ++lane) {
    growth_ += counts_[lane] * (drafting_ ? drafting_->rate(lane) : 1.0);
  }
  const StepLoad load{.sequences = static_cast<double>(running_),
                      .rows = drafting_ ? drafting_->rows(counts_) : running_};
  step_ = engine_->step_time(load, kv_tokens_);
  changed_ = false;
}

void Instance::drop_void_entries(Lane& lane) {
  while (!lane.heap.empty()) {
    const Entry& top = lane.heap.front();
    if ((*requests_)[static_cast<std::size_t>(top.request)].stamp == top.stamp) return;
    std::ranges::pop_heap(lane.heap, std::greater{});
    lane.heap.pop_back();
  }
}

double Instance::steps_to_chunk_end() {
  double least = kNever;
  for (std::size_t i = 0; i < kNumLanes; ++i) {
    if (counts_[i] == 0) continue;
    Lane& lane = lanes_[i];
    drop_void_entries(lane);
    const double rate = drafting_ ? drafting_->rate(i) : 1.0;
    const double steps = std::max(0.0, lane.heap.front().end - lane.clock) / rate;
    if (steps >= least) continue;
    least = steps;
    next_lane_ = i;
  }
  return least;
}

double Instance::steps_to_full() const {
  if (!limits_.preempts || running_ < 2) return kNever;
  const double room = static_cast<double>(engine_->kv_tokens()) - kBlockWaste * running_ - held_tokens();
  return std::max(0.0, room) / growth_;
}

void Instance::retime(double now) {
  advance(now);
  admit();
  next_s_ = kNever;
  next_ = Event::kNone;
  if (running_ > 0) {
    replan();
    next_steps_ = steps_to_chunk_end();
    next_ = Event::kChunkEnd;
    const double full = steps_to_full();
    if (full < next_steps_) {
      next_steps_ = full;
      next_ = Event::kFull;
    }
    next_s_ = synced_ + cost(next_steps_);
  }
  if (!arrivals_.empty() && arrivals_.front().time < next_s_) {
    next_s_ = std::max(now, arrivals_.front().time);
    next_ = Event::kArrival;
  }
  if (recording_ != nullptr) {
    recording_->set(InstanceId(index_), now, running_, static_cast<double>(queue_.size()),
                    100.0 * held_tokens() / static_cast<double>(engine_->kv_tokens()));
  }
}

Instance::Happened Instance::run_to(double time) {
  RONDO_CHECK(next_ != Event::kNone);
  ++stats_.events;
  if (next_ == Event::kArrival) {
    advance(time);
    std::ranges::pop_heap(arrivals_, std::greater{});
    const Arrival arrival = arrivals_.back();
    arrivals_.pop_back();
    begin(arrival.request, arrival.cached);
    return {next_, arrival.request};
  }
  do_steps(next_steps_, time);
  return {next_, next_ == Event::kChunkEnd ? end_chunk() : preempt_latest()};
}

void Instance::stop_running(RequestIndex request, std::int32_t generated) {
  RequestState& state = (*requests_)[static_cast<std::size_t>(request)];
  leave_lane(state);
  kv_tokens_ -= state.prompt_tokens + state.done;
  const auto siblings = siblings_.find(state.group);
  if (--siblings->second > 0) {
    shared_tokens_ -= shared_tokens(state);
  } else {
    siblings_.erase(siblings);
  }
  --running_;
  if (running_ == 0) kv_tokens_ = 0.0;  // without what rounding left
  state.running = false;
  if (recording_ != nullptr) record(request, generated);
  state.last_instance = index_;
  state.generated = generated;
}

RequestIndex Instance::end_chunk() {
  Lane& lane = lanes_[next_lane_];
  std::ranges::pop_heap(lane.heap, std::greater{});
  const Entry entry = lane.heap.back();
  lane.heap.pop_back();
  RequestState& state = (*requests_)[static_cast<std::size_t>(entry.request)];
  RONDO_CHECK_EQ(state.stamp, entry.stamp);
  stop_running(entry.request, state.chunk_end);
  state.instance = -1;
  return entry.request;
}

double Instance::done_now(const RequestState& request) const {
  return request.done + (lanes_[request.lane].clock - request.entered);
}

// Of a running request that stops before its chunk's end: what it had when it began, at least.
std::int32_t Instance::whole_tokens(const RequestState& request) const {
  const auto generated = std::min(static_cast<std::int32_t>(done_now(request)), request.chunk_end - 1);
  return std::max(generated, request.generated);
}

RequestIndex Instance::preempt_latest() {
  while (!(*requests_)[static_cast<std::size_t>(admitted_.back())].running) admitted_.pop_back();
  const RequestIndex request = admitted_.back();
  admitted_.pop_back();
  RequestState& state = (*requests_)[static_cast<std::size_t>(request)];
  stop_running(request, whole_tokens(state));
  state.origin = timeline::KvOrigin::kRecomputed;
  queue_.push_front(request);
  ++stats_.preemptions;
  return request;
}

bool Instance::fits(const RequestState& request) const {
  if (running_ == 0) return true;
  const auto capacity = static_cast<double>(engine_->kv_tokens());
  const double shared = siblings_.contains(request.group) ? shared_tokens(request) : 0.0;
  const double used = held_tokens() - shared + kBlockWaste * (running_ + 1) + request.context();
  return used + std::max(limits_.watermark * capacity, kAdmissionRoom * (running_ + 1)) <= capacity;
}

void Instance::admit() {
  while (!queue_.empty() && running_ < limits_.max_running) {
    const RequestIndex request = queue_.front();
    const RequestState& state = (*requests_)[static_cast<std::size_t>(request)];
    if (!fits(state)) return;
    queue_.pop_front();
    const std::int32_t cached = prompt_of_siblings(state);
    const bool was_preempted = state.last_instance == index_;
    if (was_preempted) stats_.recomputed_tokens += state.context() - cached;
    begin(request, cached);
  }
}

// Of a prefill, what lies beyond the end is not counted.
void Instance::stop(double now) {
  if (running_ > 0) advance(now);
  stats_.busy_s -= std::max(0.0, synced_ - now);
  synced_ = std::min(synced_, now);
  for (const RequestIndex request : running_requests()) {
    stop_running(request, whole_tokens((*requests_)[static_cast<std::size_t>(request)]));
  }
}

std::vector<RequestIndex> Instance::running_requests() const {
  std::vector<RequestIndex> requests;
  for (const Lane& lane : lanes_) {
    for (const Entry& entry : lane.heap) {
      if ((*requests_)[static_cast<std::size_t>(entry.request)].stamp == entry.stamp) {
        requests.push_back(entry.request);
      }
    }
  }
  std::ranges::sort(requests);
  return requests;
}

void Instance::check_invariants() const {
  const std::vector<RequestIndex> requests = running_requests();
  RONDO_CHECK_EQ(std::ssize(requests), running_);
  RONDO_CHECK_EQ(std::accumulate(counts_.begin(), counts_.end(), 0), running_);
  double tokens = 0.0;
  double shared = 0.0;
  std::unordered_map<std::int32_t, std::int32_t> siblings;
  for (const RequestIndex request : requests) {
    const RequestState& state = (*requests_)[static_cast<std::size_t>(request)];
    RONDO_CHECK(state.running);
    RONDO_CHECK_EQ(state.instance, index_);
    tokens += state.prompt_tokens + done_now(state);
    if (siblings[state.group]++ > 0) shared += shared_tokens(state);
  }
  RONDO_CHECK(siblings == siblings_);
  RONDO_CHECK_EQ(shared, shared_tokens_);
  constexpr double kRounding = 1e-9;  // of sums over some thousand events
  const auto capacity = static_cast<double>(engine_->kv_tokens());
  RONDO_CHECK_LE(std::abs(tokens - kv_tokens_), kRounding * capacity);
  if (!limits_.preempts || running_ < 2) return;  // one alone has nothing that could leave
  RONDO_CHECK_LE(held_tokens() + kBlockWaste * running_, capacity * (1.0 + kRounding));
}

void Instance::record(RequestIndex request, std::int32_t generated) {
  const RequestState& state = (*requests_)[static_cast<std::size_t>(request)];
  recording_->timeline.chunk({.request = RequestId(request),
                              .group = GroupId(state.group),
                              .instance = InstanceId(index_),
                              .begin_ns = as_ns(std::min(state.begun, synced_)),  // prefill may be cut off
                              .end_ns = as_ns(synced_),
                              .begin_tokens = state.generated,
                              .end_tokens = generated,
                              .origin = state.origin,
                              .migrated = state.last_instance >= 0 && state.last_instance != index_,
                              .finished = generated == state.length});
}

}  // namespace rondo::sim
