// `rondo bench rollout`: the same responses under several schedules, in turn, in one run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "rl/session.h"
#include "rollout/policy.h"

namespace rondo::cli {

/// What is to be run.
struct RolloutPlan {
  struct Variant {
    std::string name;
    std::string label;  // in the table
    rollout::Policy policy = rollout::Policy::kSeer;
    bool spec = false;
  };
  std::vector<Variant> variants;
  std::vector<std::int32_t> exact_lengths;  // of --lengths; empty: natural ones
  rollout::LengthPrior prior;               // from the further prompts of --lengths, if it has any
};

/// Reads and checks the arguments, which needs no model; makes the folder of --trace.
Result<RolloutPlan> plan_bench_rollout(const BenchArgs& args, const rl::Config& config);

/// Generates data.train_batch_size × rollout.n responses under each variant, args.repeats times, and prints a
/// JSON line for each and a table of medians. A variant is a rollout.policy, "+spec" behind it with
/// speculation; with args.ablation they are the steps from the undivided base to all of rondo. With
/// args.lengths responses are as long as those of the file; else as long as they come, and the oracle
/// policies take the lengths of the first variant. With args.trace the last repeat is drawn. kInternal if two
/// variants differ in a token, `partial` aside.
Result<void> bench_rollout(rl::Session& session, const BenchArgs& args, const RolloutPlan& plan,
                           Terminal& terminal);

}  // namespace rondo::cli
