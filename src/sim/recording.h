// Recording: what happened in a simulation, for pictures of it and for a replay of its decisions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "rollout/input_log.h"
#include "timeline/recorder.h"

namespace rondo::sim {

/// Simulated seconds as the nanoseconds of logs and timelines, which end after 290 years.
inline std::int64_t as_ns(double seconds) {
  constexpr double kMost = 9.2e18;
  return static_cast<std::int64_t>(std::min(seconds * 1e9, kMost));
}

/// Filled by a simulation that is given one. The timeline's memory is bounded, that of the inputs grows with
/// the number of chunks. One owner thread.
struct Recording {
  /// `name` of the timeline.
  explicit Recording(std::string name, bool logs_inputs);
  /// An instance as it is from `time_s` on.
  void set(InstanceId instance, double time_s, double running, double queued, double kv_percent);

  bool logs_inputs;
  timeline::Recorder timeline;
  timeline::Recorder::CounterId running;
  timeline::Recorder::CounterId queued;
  timeline::Recorder::CounterId kv_percent;
  std::vector<rollout::TimedInput> inputs;        // of the scheduler
  std::vector<rollout::TimedInput> draft_inputs;  // of instance 0's draft planner
};

}  // namespace rondo::sim
