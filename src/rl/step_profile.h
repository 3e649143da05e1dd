// Step profile: how long a decoding step of this model takes on this machine, by batch, drafts and context.
#pragma once

#include <filesystem>
#include <string>

#include "base/status.h"
#include "engine/engine.h"
#include "rl/config.h"
#include "rollout/step_cost.h"

namespace rondo::rl {

/// Measures T(B, gamma, context) (seer.md §4.1) on an idle engine: B responses to one prompt of random
/// tokens, each verifying gamma drafts. Takes seconds; leaves the engine idle, its KV dropped.
Result<rollout::StepCost> measure_step_cost(engine::Engine& engine, std::int32_t vocab, int max_gamma,
                                            std::int32_t max_running, std::int32_t max_context);

/// The profile of this model, kernel target and thread count from `folder`, measured and written there first
/// if it is missing or unreadable. An empty folder: measured anew. A folder that cannot be written is a
/// warning.
Result<rollout::StepCost> load_or_measure_step_cost(const Config& config, const model::Model& model,
                                                    const std::string& target, int threads,
                                                    engine::Engine& engine);
/// The file that load_or_measure_step_cost() reads and writes.
std::filesystem::path step_profile_file(const Config& config, const model::ModelSpec& spec,
                                        const std::string& target, int threads);

}  // namespace rondo::rl
