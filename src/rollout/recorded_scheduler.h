// RecordedScheduler: a scheduler whose every input is told to a log.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "rollout/input_log.h"
#include "rollout/scheduler.h"

namespace rondo::rollout {

/// Where inputs go, in order; empty: nowhere. Called by the scheduler's owner thread.
using InputSink = std::function<void(const TimedInput&)>;

/// Owns a scheduler. What changes it goes through here and is recorded once it has happened, with the clock's
/// time; what is refused is not. Reading needs no detour. One owner thread.
class RecordedScheduler final {
 public:
  RecordedScheduler(std::unique_ptr<Scheduler> scheduler, InputSink sink, const Clock* clock)
      : scheduler_(std::move(scheduler)), sink_(std::move(sink)), clock_(clock) {}

  const Scheduler& operator*() const { return *scheduler_; }
  const Scheduler* operator->() const { return scheduler_.get(); }

  // As the scheduler's own.
  Result<void> add_instance(const InstanceSpec& spec);
  std::vector<RequestId> instance_failed(InstanceId id);
  Result<void> add_group(const GroupSpec& spec);
  void set_goal(std::int64_t num_groups);
  void commit(const Assignment& assignment);
  /// The plan for the first `count` waiting requests.
  void commit(std::int32_t count, const Prefetch& prefetch);
  void chunk_done(RequestId request, std::int32_t new_tokens);
  void finished(RequestId request, std::int32_t total_tokens);
  void new_policy_version();
  void set_prior(const LengthPrior& prior);
  std::vector<RequestId> abandon();

 private:
  // `make` is called only if someone listens.
  template <class Make>
  void record(const Make& make) {
    if (sink_) sink_({.time_ns = clock_->now_ns(), .input = make()});
  }

  std::unique_ptr<Scheduler> scheduler_;
  InputSink sink_;
  const Clock* clock_;
};

}  // namespace rondo::rollout
