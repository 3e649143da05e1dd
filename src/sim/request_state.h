// RequestState: what the simulator knows of a response; the truth, which schedulers do not see.
#pragma once

#include <cstdint>

#include "timeline/timeline.h"

namespace rondo::sim {

/// Index of a request, equal to its RequestId.
using RequestIndex = std::int32_t;

struct RequestState {
  std::int32_t group = 0;
  std::int32_t prompt_tokens = 0;
  std::int32_t length = 0;          // the true one
  std::int32_t generated = 0;       // when it last stopped running
  std::int32_t chunk_end = 0;       // generated tokens at which it stops
  std::int32_t instance = -1;       // where it runs or waits to; -1: with the scheduler
  std::int32_t last_instance = -1;  // where it last ran
  std::uint32_t stamp = 0;          // counts its comings and goings in lanes, so that old entries are noticed
  std::uint8_t lane = 0;
  timeline::KvOrigin origin = timeline::KvOrigin::kResident;  // of its KV where it runs
  bool is_probe = false;
  bool running = false;
  double done = 0.0;     // tokens generated when it entered its lane
  double entered = 0.0;  // the lane's clock then
  double begun = 0.0;    // time at which it last began to run

  std::int32_t context() const { return prompt_tokens + generated; }
};

}  // namespace rondo::sim
