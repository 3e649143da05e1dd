// plan_step: the scheduling policy, as a pure function of the roster.
#pragma once

#include <cstdint>

#include "batch/drafts.h"
#include "batch/plan.h"
#include "batch/roster.h"

namespace rondo::batch {

struct StepLimits {
  std::int32_t max_batch_tokens = 0;  // >= max_running
  std::int32_t max_running = 0;
};

/// Fills `plan` with the next step:
/// 1. The first max_running residents in order of arrival (resuming may make more). A decoding one gets its
/// row and, as far as budget and free blocks go, its
///    draft; what the token budget leaves beyond one row per decoding sequence goes to drafts and prefilling
///    sequences in turn. A decoding one that needs a block when none is free takes it from kept prompts, then
///    from the oldest parked sequence, then from the latest arrival, which is preempted.
/// 2. Unless that preempted anyone: waiting sequences in order of arrival, as long as there is budget, a
///    running place, and room for all their known tokens with one block to spare for each sequence that can
///    still grow in its chunk. One whose sibling is computing their prompt is passed over; nothing else is
///    overtaken. Parked sequences give their blocks up for a waiting one only if nothing else runs.
void plan_step(const Roster& roster, const StepLimits& limits, const Drafts& drafts, Plan& plan);

}  // namespace rondo::batch
