// Recording: what happened in a simulation, for pictures of it and for a replay of its decisions.
#pragma once

#include <cstdint>
#include <vector>

#include "rollout/input_log.h"
#include "sim/request_state.h"

namespace rondo::sim {

/// A stretch in which a request ran on an instance without a break.
struct RunSpan {
  std::int32_t instance = 0;
  RequestIndex request = 0;
  double begin_s = 0.0;
  double end_s = 0.0;
  std::int32_t tokens = 0;
  bool preempted = false;
};

struct KvMove {
  RequestIndex request = 0;
  std::int32_t from = -1;  // -1: host or disk
  std::int32_t to = 0;
  double begin_s = 0.0;
  double end_s = 0.0;
  double bytes = 0.0;
};

/// An instance at a time.
struct InstanceSample {
  double time_s = 0.0;
  std::int32_t instance = 0;
  std::int32_t running = 0;
  std::int32_t queued = 0;
  double kv_share = 0.0;
};

/// Plain data, filled by a simulation that is given one. Memory grows with the number of chunks.
struct Recording {
  double sample_period_s = 1.0;
  std::vector<RunSpan> spans;
  std::vector<KvMove> moves;
  std::vector<InstanceSample> samples;
  std::vector<rollout::TimedInput> inputs;        // of the scheduler
  std::vector<rollout::TimedInput> draft_inputs;  // of instance 0's draft planner
};

}  // namespace rondo::sim
