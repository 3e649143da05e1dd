// FakeCluster: instances that only count tokens and time, driven by a real Scheduler; for tests and benches.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "rollout/scheduler.h"

namespace rondo::rollout {

/// A discrete-event model of a rollout.
///
/// All running responses of an instance advance together, one token per step; a step takes
/// `step_s + per_sequence_s * running + per_kv_token_s * KV tokens`, and prefill and moved KV stop the
/// instance. Under a
/// policy that reserves nothing the instance queues, grows KV on demand and preempts the latest, which is
/// computed again. Response lengths are the true_tokens of the groups. Not for timing-critical claims about
/// any real machine. One owner thread.
class FakeCluster final {
 public:
  struct Cost {
    double step_s = 0.010;
    double per_sequence_s = 0.00005;
    double per_kv_token_s = 0.0;
    double per_prefill_token_s = 0.00002;
    double per_moved_token_s = 0.0;
  };
  /// Sees every event as it happens. Each may be empty.
  struct Observer {
    std::function<void(const Assignment&)> assigned;
    std::function<void(const Prefetch&)> prefetched;
    std::function<void(RequestId, std::int32_t new_tokens)> chunk_done;
    std::function<void(RequestId, std::int32_t total_tokens)> finished;
  };
  struct Done {
    RequestId request;
    double time = 0.0;
    std::int32_t tokens = 0;
  };

  FakeCluster(Scheduler& scheduler, const Cost& cost, Observer observer = {})
      : scheduler_(&scheduler), cost_(cost), observer_(std::move(observer)) {}

  /// Each must be one that the scheduler accepts.
  void add_instance(const InstanceSpec& spec);
  void fail_instance(InstanceId id);
  void add_group(const GroupSpec& spec);

  /// Assigns all that can be, then lets the next chunk end. False if nothing was in flight.
  bool step();

  double now() const { return now_; }
  /// In order of time.
  std::span<const Done> done() const { return done_; }
  std::int64_t preemptions() const { return preemptions_; }
  /// What the last assignment round ended with.
  Idle idle() const { return idle_; }

 private:
  struct Running {
    RequestId request;
    double end = 0.0;            // in virtual steps of the instance
    std::int64_t kv_tokens = 0;  // at its start
    double start = 0.0;
    std::int64_t order = 0;  // of admission
  };
  struct Instance {
    InstanceSpec spec;
    std::map<RequestId, Running> running;
    std::set<std::pair<double, RequestId>> ends;
    std::map<std::int64_t, RequestId> by_order;
    std::deque<RequestId> queue;  // handed over without a reservation
    double steps = 0.0;           // virtual, done by `synced`
    double synced = 0.0;          // may lie ahead: prefill
    double kv_tokens = 0.0;
    std::int64_t epoch = 0;  // of its next event
  };
  struct Event {
    double time;
    InstanceId instance;
    std::int64_t epoch;
    bool operator>(const Event& other) const {
      return std::pair(time, instance) > std::pair(other.time, other.instance);
    }
  };
  struct Sample {
    std::int32_t prompt_tokens = 0;
    std::int32_t length = 0;
    std::int32_t generated = 0;
    std::int32_t chunk = 0;
  };

  void assign_all();
  void prefetch();
  void begin(Instance& instance, RequestId request, double delay_s);
  std::int64_t leave(Instance& instance, RequestId request);
  void advance(Instance& instance);
  void schedule(Instance& instance);
  double step_time(const Instance& instance) const;
  double steps_until_full(const Instance& instance) const;
  void admit_queued(Instance& instance);
  void preempt_latest(Instance& instance);
  void end_chunk(Instance& instance, RequestId request);

  Scheduler* scheduler_;
  Cost cost_;
  Observer observer_;
  std::map<InstanceId, Instance> instances_;
  std::unordered_map<RequestId, Sample> samples_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Done> done_;
  double now_ = 0.0;
  std::int64_t next_order_ = 0;
  std::int64_t next_epoch_ = 0;
  std::int64_t preemptions_ = 0;
  Idle idle_ = Idle::kNothingWaiting;
};

}  // namespace rondo::rollout
