// `rondo bench spec`: decoding with speculation beside decoding without, on the same tokens.
#pragma once

#include <vector>

#include "base/status.h"
#include "cli/terminal.h"
#include "rl/session.h"

namespace rondo::cli {

struct SpecBenchArgs {
  std::vector<int> batches;  // responses at once, in groups of rollout.n or fewer
  int new_tokens = 64;
  int repeats = 3;
};

/// For each batch size generates responses to the first prompts of data.train_files, plain and with drafts as
/// rollout.spec says, in turn, `repeats` times after a warm-up; prints a JSON line for each batch and a table
/// of the ratio's median and quartiles. A plain run is paired with the speculating one beside it. kInternal
/// if they differ in a token. Lengths are fixed (new_tokens), so that the batch stays what it is called.
Result<void> bench_spec(rl::Session& session, const SpecBenchArgs& args, Terminal& terminal);

}  // namespace rondo::cli
