// One GRPO step as `rondo bench step` measures it: a real rollout, its gradient, the optimiser.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "rl/prompts.h"
#include "rl/session.h"
#include "train/trainer.h"

namespace rondo::cli {

/// Seconds of one step by phase, with the work that took them.
struct StepMeasurement {
  double rollout_s = 0;
  double gradient_s = 0;  // forward and backward of all units
  double optimizer_s = 0;
  std::vector<std::vector<Token>> prompts;         // in issue order
  std::vector<std::vector<std::int64_t>> lengths;  // [prompts, rollout.n], of the responses in tokens
};

/// Runs step `step` (from 1) on the prompts that training would take then and changes the weights. Advantages
/// are +1 and -1 in turn, so that every response has a gradient and the work does not hang on its rewards.
Result<StepMeasurement> measure_step(rl::Session& session, train::Trainer& trainer,
                                     const rl::PromptSet& prompts, std::int64_t step);

/// The measurement as a JSON line, with the prompts and lengths that another program needs to do the same
/// work.
std::string step_as_json(const StepMeasurement& m, const rl::Session& session, const train::Trainer& trainer,
                         std::int64_t step);

}  // namespace rondo::cli
