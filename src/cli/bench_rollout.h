// `rondo bench rollout`: the same responses under several schedules, in turn, in one run.
#pragma once

#include "base/status.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "rl/session.h"

namespace rondo::cli {

/// Generates data.train_batch_size × rollout.n responses under each variant, args.repeats times, and prints a
/// JSON line for each and a table of medians. A variant is a rollout.policy, "+spec" behind it with
/// speculation; with args.ablation they are the steps from the undivided base to all of rondo. With
/// args.lengths responses are as long as those of the file; else as long as they come, and the oracle
/// policies take the lengths of the first variant. With args.trace the last repeat is drawn. kInternal if two
/// variants differ in a token, `partial` aside.
Result<void> bench_rollout(rl::Session& session, const BenchArgs& args, Terminal& terminal);

/// What can be said of the arguments before the model is loaded; makes the folder of --trace.
Result<void> check_bench_rollout(const BenchArgs& args);

}  // namespace rondo::cli
