// plan_step: the scheduling policy, as a pure function of the roster.
#pragma once

#include <cstdint>

#include "batch/plan.h"
#include "batch/roster.h"

namespace rondo::batch {

struct StepLimits {
  std::int32_t max_batch_tokens = 0;  // >= max_running
  std::int32_t max_running = 0;
};

/// Fills `plan` with the next step:
/// 1. Residents in order of arrival. A decoding one gets its row; what the token budget leaves beyond one row
///    per decoding sequence goes to the prefilling ones in turn. A decoding one that needs a block when none
///    is free takes it from kept prompts, then from the latest arrival, which is preempted.
/// 2. Unless that preempted anyone: waiting sequences in order of arrival, as long as there is budget, a
///    running place, and room for all their known tokens with one block to spare for each sequence that can
///    still grow. One whose sibling is computing their prompt is passed over; nothing else is overtaken.
void plan_step(const Roster& roster, const StepLimits& limits, Plan& plan);

}  // namespace rondo::batch
