// Step profile: how long a decoding step of this model takes on this machine, by batch, drafts and context.
#pragma once

#include <atomic>
#include <filesystem>
#include <string>

#include "base/status.h"
#include "engine/engine.h"
#include "rl/config.h"
#include "rollout/step_cost.h"

namespace rondo::rl {

/// How far a profile reaches: what the config wants, as far as the KV pool holds it.
struct StepProfileRange {
  std::int32_t max_running = 1;
  std::int32_t max_context = 1;
  int max_gamma = 0;
};
StepProfileRange step_profile_range(const Config& config, const model::ModelSpec& spec,
                                    std::int32_t num_blocks);

/// Measures T(B, gamma, context) (of Seer, arXiv 2511.14617) on an idle engine: B responses to one prompt
/// of random tokens, each verifying gamma drafts. Takes seconds; leaves the engine idle, its KV dropped.
/// kCancelled as soon as `interrupted` (may be null) is true.
Result<rollout::StepCost> measure_step_cost(engine::Engine& engine, std::int32_t vocab,
                                            const StepProfileRange& range,
                                            const std::atomic<bool>* interrupted = nullptr);

/// Who the profile is of.
struct StepProfileKey {
  const Config& config;
  const model::Model& model;
  std::string target;  // of the kernels
  int threads = 1;
};
/// Where it is kept: a file for each model shape, storage type, kernel target, thread count, processor (its
/// name and number of cores), build of the program and range. Machines with the same processor share one,
/// those of a cluster with a common folder for instance.
std::filesystem::path step_profile_file(const StepProfileKey& key, std::int32_t num_blocks);

/// The profile that is kept, else, with a warning if the file is damaged, a new one.
Result<rollout::StepCost> load_or_measure_step_cost(const StepProfileKey& key, engine::Engine& engine,
                                                    const std::atomic<bool>* interrupted = nullptr);
/// Measures, then replaces the file; until then the old one stays. Without a folder nothing is kept; one
/// that cannot be written is a warning.
Result<rollout::StepCost> renew_step_cost(const StepProfileKey& key, engine::Engine& engine,
                                          const std::atomic<bool>* interrupted = nullptr);

}  // namespace rondo::rl
