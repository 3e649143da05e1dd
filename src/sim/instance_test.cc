#include "sim/instance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <random>

namespace rondo::sim {
namespace {

using Event = Instance::Event;

constexpr double kCapacity = 4000;
constexpr std::int32_t kGroupSize = 4;
// A naive state is the sum of at most 1e5 steps, each rounded by 2^-53 of a number below 1e4.
constexpr double kRounding = 1e-6;

// Reading KV takes most of a step: with 2 KB a number some 10 us a token, and 3 ms for the weights.
EngineModel costly_kv() {
  ModelShape model = *find_model("qwen3-32b");
  model.kv_value_bytes = 2000;
  return *EngineModel::create({.devices = 8, .step_overhead_ms = 0.1, .kv_tokens = 4000},
                              *find_device("h800"), model);
}

/// An instance as its contract says it: one token after the other, sums taken anew each time, and a step that
/// takes the time of the KV at its middle, which for a cost that is linear in KV is the integral over it.
class NaiveInstance final {
 public:
  struct Request {
    std::int32_t group = 0;
    std::int32_t prompt = 0;
    std::int32_t chunk_end = 0;
    double done = 0.0;
    std::uint8_t lane = 0;
  };

  NaiveInstance(const EngineModel& engine, const Instance::Limits& limits, std::optional<Drafting> drafting)
      : engine_(engine), limits_(limits), drafting_(std::move(drafting)) {}

  std::map<RequestIndex, Request> requests;
  std::vector<RequestIndex> running;  // in order of admission
  std::deque<RequestIndex> queue;
  double tokens = 0.0;
  double request_steps = 0.0;

  double kv() const {
    double sum = 0.0;
    for (const RequestIndex r : running) sum += requests.at(r).prompt + requests.at(r).done;
    return sum;
  }
  bool has_sibling(RequestIndex r) const {
    return std::ranges::any_of(
        running, [&](RequestIndex other) { return requests.at(other).group == requests.at(r).group; });
  }
  // The prompt's blocks of 64, of all but its last token, once per group.
  double held() const {
    std::map<std::int32_t, std::int32_t> shared;
    double sum = kv();
    for (const RequestIndex r : running) {
      const auto [group, is_first] = shared.emplace(requests.at(r).group, shared_tokens(r));
      if (!is_first) sum -= group->second;
    }
    return sum;
  }
  std::int32_t shared_tokens(RequestIndex r) const { return (requests.at(r).prompt - 1) / 64 * 64; }
  double kv_with_waste() const { return held() + 8.0 * static_cast<double>(running.size()); }

  void advance(double now) {
    if (running.empty()) clock_ = std::max(clock_, now);
    while (clock_ < now) {
      const double whole = step_.seconds(kv() + growth() / 2);
      double steps = 1.0;
      if (clock_ + whole > now) {
        for (int i = 0; i < 40; ++i) steps = (now - clock_) / step_.seconds(kv() + growth() * steps / 2);
      }
      clock_ = std::min(now, clock_ + whole);
      steps_since_plan_ += steps;
      tokens += growth() * steps;
      request_steps += steps * static_cast<double>(running.size());
      for (const RequestIndex r : running) requests.at(r).done += rate(r) * steps;
    }
  }
  void begin(RequestIndex r, std::int32_t cached) {
    const Request& request = requests.at(r);
    clock_ += engine_.prefill_s(request.prompt + request.done - cached, cached);
    running.push_back(r);
  }
  void leave(RequestIndex r) { running.erase(std::ranges::find(running, r)); }
  // As retime().
  void settle(double now) {
    advance(now);
    while (!queue.empty() && std::ssize(running) < limits_.max_running && fits(queue.front())) {
      begin(queue.front(), has_sibling(queue.front()) ? requests.at(queue.front()).prompt - 1 : 0);
      queue.pop_front();
    }
    if (running.empty()) return;
    LaneCounts counts{};
    for (const RequestIndex r : running) ++counts[requests.at(r).lane];
    const auto size = static_cast<double>(running.size());
    double rows = size;
    if (drafting_) {
      drafting_->replan(counts, static_cast<std::int32_t>(kv() / size), steps_since_plan_, nullptr);
      steps_since_plan_ = 0.0;
      rows = drafting_->rows(counts);
    }
    step_ = engine_.step_time({.sequences = size, .rows = rows}, kv());
  }

 private:
  double rate(RequestIndex r) const { return drafting_ ? drafting_->rate(requests.at(r).lane) : 1.0; }
  double growth() const {
    double sum = 0.0;
    for (const RequestIndex r : running) sum += rate(r);
    return sum;
  }
  bool fits(RequestIndex r) const {
    const double after = 8.0 * static_cast<double>(running.size() + 1);
    const double shared = has_sibling(r) ? shared_tokens(r) : 0;
    const double used = held() - shared + requests.at(r).prompt + requests.at(r).done + after;
    return running.empty() || used + std::max(limits_.watermark * kCapacity, after) <= kCapacity;
  }

  const EngineModel& engine_;
  Instance::Limits limits_;
  std::optional<Drafting> drafting_;
  StepTime step_;
  double clock_ = 0.0;
  double steps_since_plan_ = 0.0;
};

/// Drives both with the same random requests, and compares them at every event.
class Comparison final {
 public:
  Comparison(bool preempts, bool speculates, std::uint32_t seed)
      : random_(seed),
        limits_{.preempts = preempts, .max_running = 24, .watermark = seed % 2 == 0 ? 0.0 : 0.01},
        engine_(costly_kv()),
        naive_(engine_, limits_, speculates ? std::optional(drafting()) : std::nullopt),
        instance_(7, engine_, limits_, states_, nullptr) {
    if (speculates) instance_.draft_with(drafting());
    for (RequestIndex r = 0; r < 60; ++r) add_request(r);
  }

  void run() {
    while (num_finished_ < std::ssize(states_)) {
      const double action = now_ + 0.001 * uniform(0, 40);
      const bool acts = action < instance_.next_event_s();
      ASSERT_LT(std::min(action, instance_.next_event_s()), 1e9);
      now_ = std::min(action, instance_.next_event_s());
      naive_.advance(now_);
      acts ? act() : do_event();
      instance_.retime(now_);
      naive_.settle(now_);
      instance_.check_invariants();
      check_nothing_missed();
    }
    EXPECT_NEAR(instance_.stats().tokens, naive_.tokens, kRounding * naive_.tokens);
    EXPECT_NEAR(instance_.stats().request_steps, naive_.request_steps, kRounding * naive_.request_steps);
  }

  std::int64_t preemptions() const { return instance_.stats().preemptions; }
  std::int32_t num_arrivals() const { return num_arrivals_; }

 private:
  struct Arrival {
    double start_s = 0.0;
    std::int32_t cached = 0;
  };

  Drafting drafting() const { return {planner_, *engine_.as_profile(planner_.max_gamma), gain_, 9}; }
  std::int32_t uniform(std::int32_t least, std::int32_t most) {
    return std::uniform_int_distribution(least, most)(random_);
  }
  NaiveInstance::Request& naive(RequestIndex r) { return naive_.requests.at(r); }
  RequestState& state(RequestIndex r) { return states_[static_cast<std::size_t>(r)]; }

  void add_request(RequestIndex r) {
    const std::int32_t prompt = r % kGroupSize == 0 ? uniform(10, 200) : states_.back().prompt_tokens;
    states_.push_back({.group = r / kGroupSize, .prompt_tokens = prompt, .length = uniform(1, 300)});
    state(r).lane = static_cast<std::uint8_t>(uniform(0, kNumLanes - 1));
    naive_.requests[r] = {.group = state(r).group, .prompt = state(r).prompt_tokens, .lane = state(r).lane};
    waiting_.push_back(r);
  }

  void act() {
    if (!waiting_.empty() && uniform(0, 3) > 0) {
      limits_.preempts ? enqueue(waiting_.front()) : deliver(waiting_.front());
    } else {
      const RequestIndex r = uniform(0, static_cast<std::int32_t>(states_.size()) - 1);
      naive(r).lane = static_cast<std::uint8_t>(uniform(0, kNumLanes - 1));
      instance_.change_lane(r, naive(r).lane, now_);
    }
  }

  void enqueue(RequestIndex r) {
    waiting_.pop_front();
    state(r).chunk_end = naive(r).chunk_end = state(r).length;
    instance_.enqueue(r, now_);
    naive_.queue.push_back(r);
  }

  // Of what fits with its peak reserved, as the scheduler sees to.
  void deliver(RequestIndex r) {
    const std::int32_t end = std::min(state(r).length, state(r).generated + uniform(1, 100));
    if (reserved_ + state(r).prompt_tokens + end > kCapacity) return;
    waiting_.pop_front();
    reserved_ += state(r).prompt_tokens + end;
    state(r).chunk_end = naive(r).chunk_end = end;
    const Arrival arrival{.start_s = now_ + 0.01 * uniform(0, 3), .cached = uniform(0, state(r).context())};
    instance_.deliver(r, now_, arrival.start_s, arrival.cached);
    if (arrival.start_s > now_) {
      arrivals_[r] = arrival;
    } else {
      naive_.begin(r, arrival.cached);
    }
  }

  void do_event() {
    const Instance::Happened happened = instance_.run_to(now_);
    const RequestIndex r = happened.request;
    switch (happened.event) {
      case Event::kArrival:
        return arrive(r);
      case Event::kChunkEnd:
        return end_chunk(r);
      case Event::kFull:
        return preempt(r);
      case Event::kNone:
        FAIL();
    }
  }

  void arrive(RequestIndex r) {
    ++num_arrivals_;
    ASSERT_TRUE(arrivals_.contains(r));
    EXPECT_LE(arrivals_[r].start_s, now_);
    for (const auto& [other, arrival] : arrivals_) EXPECT_GE(arrival.start_s, arrivals_[r].start_s);
    naive_.begin(r, arrivals_[r].cached);
    arrivals_.erase(r);
  }

  void end_chunk(RequestIndex r) {
    EXPECT_NEAR(naive(r).done, naive(r).chunk_end, kRounding);
    EXPECT_EQ(state(r).generated, naive(r).chunk_end);
    naive_.leave(r);
    naive(r).done = state(r).generated;
    reserved_ -= state(r).prompt_tokens + naive(r).chunk_end;
    if (state(r).generated < state(r).length) {
      waiting_.push_back(r);
    } else {
      ++num_finished_;
    }
  }

  void preempt(RequestIndex r) {
    EXPECT_NEAR(naive_.kv_with_waste(), kCapacity, kRounding);
    EXPECT_EQ(r, naive_.running.back());
    EXPECT_GE(naive(r).done, state(r).generated - kRounding);  // whole tokens of what it had
    EXPECT_LT(naive(r).done, state(r).generated + 1 + kRounding);
    naive_.leave(r);
    naive(r).done = state(r).generated;
    naive_.queue.push_front(r);
  }

  // Nothing went on beyond an event of its own.
  void check_nothing_missed() {
    for (const RequestIndex r : naive_.running) {
      EXPECT_TRUE(state(r).running);
      EXPECT_LE(naive(r).done, naive(r).chunk_end + kRounding);
    }
    for (const auto& [r, arrival] : arrivals_) EXPECT_GE(arrival.start_s, now_);
    if (limits_.preempts && naive_.running.size() < 2) return;  // nothing that could leave
    const double used = limits_.preempts ? naive_.kv_with_waste() : naive_.kv();
    EXPECT_LE(used, kCapacity + kRounding);
  }

  std::mt19937 random_;
  Instance::Limits limits_;
  EngineModel engine_;
  rollout::DraftLengthPlanner::Config planner_;
  DraftGain gain_{DraftGain::Config{}};
  std::vector<RequestState> states_;
  NaiveInstance naive_;
  Instance instance_;
  std::deque<RequestIndex> waiting_;
  std::map<RequestIndex, Arrival> arrivals_;
  double now_ = 0.0;
  double reserved_ = 0.0;
  std::int32_t num_finished_ = 0;
  std::int32_t num_arrivals_ = 0;
};

TEST(Instance, WithReservationsAgreesWithOneTokenAfterTheOther) {
  for (const bool speculates : {false, true}) {
    for (std::uint32_t seed = 0; seed < 10; ++seed) {
      Comparison comparison(false, speculates, seed);
      comparison.run();
      EXPECT_EQ(comparison.preemptions(), 0);
      EXPECT_GT(comparison.num_arrivals(), 10) << seed;
    }
  }
}

TEST(Instance, WithPreemptionsAgreesWithOneTokenAfterTheOther) {
  for (const bool speculates : {false, true}) {
    for (std::uint32_t seed = 0; seed < 10; ++seed) {
      Comparison comparison(true, speculates, seed);
      comparison.run();
      EXPECT_GT(comparison.preemptions(), 0) << seed;
    }
  }
}

// What was let go for want of room must not come back at once, or nothing ever ends.
TEST(Instance, APreemptedRequestWaitsForRoomToGrow) {
  std::vector<RequestState> states(2, {.prompt_tokens = 1800, .length = 500, .chunk_end = 500});
  states[1].group = 1;
  const EngineModel engine = costly_kv();
  Instance instance(0, engine, {.preempts = true, .max_running = 8, .watermark = 0.0}, states, nullptr);
  instance.enqueue(0, 0.0);
  instance.enqueue(1, 0.0);
  instance.retime(0.0);
  std::vector<Event> events;
  while (events.size() < 8 && instance.next_event_s() < 1e9) {
    const double now = instance.next_event_s();
    events.push_back(instance.run_to(now).event);
    instance.retime(now);
  }
  EXPECT_EQ(events, (std::vector{Event::kFull, Event::kChunkEnd, Event::kChunkEnd}));
}

// 3 x (1800 + 500) tokens of KV with the prompt three times, 28 blocks of 64 less for each further sample.
TEST(Instance, SiblingsComputeAndHoldTheirPromptOnce) {
  const EngineModel engine = costly_kv();
  std::map<bool, Instance::Stats> stats;
  for (const bool siblings : {true, false}) {
    std::vector<RequestState> states(3, {.prompt_tokens = 1800, .length = 500, .chunk_end = 500});
    for (std::int32_t r = 0; r < 3 && !siblings; ++r) states[static_cast<std::size_t>(r)].group = r;
    Instance instance(0, engine, {.preempts = true, .max_running = 8, .watermark = 0.0}, states, nullptr);
    for (RequestIndex r = 0; r < 3; ++r) instance.enqueue(r, 0.0);
    for (double now = 0.0; now < 1e9; now = instance.next_event_s()) {
      if (now > 0.0) instance.run_to(now);
      instance.retime(now);
      instance.check_invariants();
    }
    stats[siblings] = instance.stats();
  }
  EXPECT_EQ(stats[true].preemptions, 0);
  EXPECT_EQ(stats[true].request_steps, 3 * 500);  // all at once
  EXPECT_GT(stats[false].preemptions, 0);
  const double decode = stats[true].busy_s - engine.prefill_s(1800, 0) - 2 * engine.prefill_s(1, 1799);
  const StepTime step = engine.step_time({.sequences = 3, .rows = 3}, 3 * 1800);
  EXPECT_NEAR(decode, 500 * step.seconds(3 * (1800 + 250)), kRounding);  // reads every context whole
}

TEST(Instance, StopWritesBackTheWholeTokensOfWhatRuns) {
  std::vector<RequestState> states(2, {.prompt_tokens = 100, .length = 300, .chunk_end = 300});
  states[1].group = 1;
  states[1].prompt_tokens = 900;
  const EngineModel engine = costly_kv();
  Instance instance(0, engine, {.max_running = 8}, states, nullptr);
  instance.deliver(0, 0.0, 0.0, 100);
  instance.retime(0.0);
  const double end = 0.5 * instance.next_event_s();
  instance.deliver(1, end, end, 0);  // whose prefill goes on
  instance.retime(end);
  instance.stop(end);
  EXPECT_GT(states[0].generated, 0);
  EXPECT_NEAR(instance.stats().request_steps, states[0].generated, 1.0);
  EXPECT_EQ(states[1].generated, 0);
  EXPECT_NEAR(instance.stats().busy_s, end, 1e-12);
  EXPECT_FALSE(states[0].running || states[1].running);
}

}  // namespace
}  // namespace rondo::sim
