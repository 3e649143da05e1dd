// `rondo bench rollout`: the same responses under several schedules, in turn, in one run.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/terminal.h"
#include "rl/session.h"

namespace rondo::cli {

/// Generates data.train_batch_size × rollout.n responses under each variant, `repeats` times, and prints a
/// JSON line for each and a table of medians. A variant is a rollout.policy, "+spec" behind it with
/// speculation. The oracles know the lengths from the first variant. kInternal if two variants differ in a
/// token, `partial` aside.
Result<void> bench_rollout(rl::Session& session, const std::vector<std::string>& variants, int repeats,
                           Terminal& terminal);

}  // namespace rondo::cli
