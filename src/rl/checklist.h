// The first step's check-list: what must hold if data, reward, engine and trainer fit together.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "reward/reward.h"
#include "rl/config.h"
#include "rl/generation.h"
#include "rl/policy_update.h"
#include "rl/prompts.h"

namespace rondo::rl {

/// One line of the list.
struct CheckItem {
  std::string name;
  std::string value;
  bool ok;
  std::string hint;  // what to look at where it is not ok
};

/// Scores the ground truth itself (should be 1) and an empty answer (should be 0) for a few prompts.
Result<std::vector<CheckItem>> check_reward(const PromptSet& prompts, const reward::RewardFunction& reward);

/// What the first training step shows.
std::vector<CheckItem> check_first_step(const Config& config, std::span<const ScoredGroup> groups,
                                        const UpdateSummary& summary);

/// The list as a table for the terminal.
std::string format_checklist(std::span<const CheckItem> items);

}  // namespace rondo::rl
