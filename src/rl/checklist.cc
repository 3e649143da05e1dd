#include "rl/checklist.h"

#include <algorithm>
#include <cmath>

#include "metrics/console.h"

namespace rondo::rl {
namespace {

constexpr std::size_t kRewardProbes = 8;
constexpr double kManyFlatGroups = 0.5;
constexpr double kManyTruncated = 0.25;

// What a response that is right looks like to the rule that scores it.
std::string right_answer(const Prompt& prompt, double plain_score, const reward::RewardFunction& reward) {
  if (plain_score == 1.0) return prompt.row.ground_truth;
  const std::string marked = "#### " + prompt.row.ground_truth;
  const auto scored = reward({.data_source = prompt.row.data_source,
                              .response = marked,
                              .ground_truth = prompt.row.ground_truth,
                              .extra_info_json = prompt.row.extra_info_json});
  return scored && scored->score == 1.0 ? marked : prompt.row.ground_truth;
}

Result<double> score_of(const Prompt& prompt, std::string_view response,
                        const reward::RewardFunction& reward) {
  RONDO_ASSIGN(const reward::RewardResult scored, reward({.data_source = prompt.row.data_source,
                                                          .response = response,
                                                          .ground_truth = prompt.row.ground_truth,
                                                          .extra_info_json = prompt.row.extra_info_json}));
  return scored.score;
}

CheckItem zero_item(std::string name, double value, std::string hint) {
  return {std::move(name), metrics::format_number(value), value == 0, std::move(hint)};
}

}  // namespace

Result<std::vector<CheckItem>> check_reward(const PromptSet& prompts, const reward::RewardFunction& reward) {
  const std::size_t probes = std::min(kRewardProbes, prompts.prompts.size());
  double right = 0, empty = 0;
  for (std::size_t i = 0; i < probes; ++i) {
    const Prompt& prompt = prompts.prompts[i];
    RONDO_ASSIGN(const double plain, score_of(prompt, prompt.row.ground_truth, reward));
    RONDO_ASSIGN(const double best, score_of(prompt, right_answer(prompt, plain, reward), reward));
    RONDO_ASSIGN(const double none, score_of(prompt, "", reward));
    right += best;
    empty += none;
  }
  const auto count = static_cast<double>(probes);
  return std::vector<CheckItem>{{"reward of the ground truth", metrics::format_number(right / count),
                                 right == count, "reward.function does not accept the data's own answers"},
                                {"reward of an empty answer", metrics::format_number(empty / count),
                                 empty == 0, "reward.function rewards saying nothing"}};
}

std::vector<CheckItem> check_first_step(const Config& config, std::span<const ScoredGroup> groups,
                                        const UpdateSummary& summary) {
  double flat = 0, truncated = 0, samples = 0, tokens = 0;
  for (const ScoredGroup& group : groups) {
    const double first = group.samples.front().reward.score;
    flat += std::all_of(group.samples.begin(), group.samples.end(),
                        [&](const ScoredResponse& s) { return s.reward.score == first; });
    for (const ScoredResponse& sample : group.samples) {
      ++samples;
      tokens += static_cast<double>(sample.response.tokens.size());
      truncated += sample.response.reason == batch::FinishReason::kLength;
    }
  }
  const auto count = static_cast<double>(groups.size());
  std::vector<CheckItem> items;
  if (summary.updates > 0) {
    items.push_back(zero_item("log-prob difference engine/trainer", summary.first_update.max_logprob_error,
                              "the engine and the trainer disagree: a bug, please report it"));
    items.push_back(zero_item("largest |ratio - 1|", summary.first_update.max_ratio_error,
                              "the ratio must be 1 before the first update: a bug, please report it"));
  }
  const bool same_reference = config.model.ref_path.empty();
  if (config.actor.loss.kl_loss_coef > 0 && same_reference)
    items.push_back(zero_item("KL to the reference", summary.first_update.weighted_kl,
                              "the reference is the policy: a bug, please report it"));
  items.push_back({"groups without reward variance", metrics::format_number(flat / count),
                   flat / count <= kManyFlatGroups,
                   "most groups teach nothing; the task may be too easy or too hard"});
  items.push_back({"responses cut at the limit", metrics::format_number(truncated / samples),
                   truncated / samples <= kManyTruncated, "raise data.max_response_length"});
  items.push_back({"response tokens per group", metrics::format_number(tokens / count), true, ""});
  items.push_back({"gradient norm", metrics::format_number(summary.grad_norm),
                   std::isfinite(summary.grad_norm), "lower actor.optim.lr"});
  return items;
}

std::string format_checklist(std::span<const CheckItem> items) {
  metrics::ConsoleTable table({"first-step check", "value", "", "if not"});
  for (const CheckItem& item : items)
    table.add_row({item.name, item.value, item.ok ? "ok" : "LOOK", item.ok ? "" : item.hint});
  return table.to_string();
}

}  // namespace rondo::rl
