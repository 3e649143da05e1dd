#include "rl/evaluation.h"

#include <nlohmann/json.hpp>
#include <vector>

namespace rondo::rl {
namespace {

std::string score_name(const std::string& source, int n) {
  return fmt::format("val-core/{}/reward/mean@{}", source.empty() ? "unknown" : source, n);
}

}  // namespace

void EvaluationReport::add_to(metrics::StepRecord& record, int n) const {
  for (const auto& [source, sums] : sources)
    record.set(score_name(source, n), sums.score_sum / static_cast<double>(sums.responses));
  record.set("val-aux/response_length/mean", mean_length);
  record.set("val-aux/response_length/clip_ratio",
             responses == 0 ? 0.0 : static_cast<double>(truncated) / static_cast<double>(responses));
}

std::optional<double> logged_mean_score(std::string_view line, const PromptSet& prompts, int n) {
  const nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object() || prompts.prompts.empty()) return std::nullopt;
  double sum = 0;
  for (const Prompt& prompt : prompts.prompts) {
    const auto score = row.find(score_name(prompt.row.data_source, n));
    if (score == row.end() || !score->is_number()) return std::nullopt;
    sum += score->get<double>();
  }
  return sum / static_cast<double>(prompts.prompts.size());
}

Result<void> check_ground_truths(const reward::Config& config, const PromptSet& prompts) {
  for (const Prompt& prompt : prompts.prompts) {
    auto checked = reward::check_ground_truth(config, prompt.row.data_source, prompt.row.ground_truth);
    if (!checked) return tl::unexpected<Status>(std::move(checked).error().with_context(prompt.row.name()));
  }
  return {};
}

Result<EvaluationReport> evaluate(Session& session, const PromptSet& prompts,
                                  const reward::RewardFunction& reward, std::uint32_t step,
                                  const std::atomic<bool>& interrupted, const GenerationProgress& progress) {
  std::vector<const Prompt*> all;
  for (const Prompt& prompt : prompts.prompts) all.push_back(&prompt);
  GenerationStats stats;
  RONDO_ASSIGN(const std::vector<ScoredGroup> groups, generate(session,
                                                               {.prompts = all,
                                                                .sampling = &session.config.rollout.val,
                                                                .purpose = RngPurpose::kEval,
                                                                .step = step},
                                                               reward, interrupted, stats, progress));
  EvaluationReport report;
  double lengths = 0;
  for (const ScoredGroup& group : groups) {
    EvaluationReport::Source& source = report.sources[group.prompt->row.data_source];
    for (const ScoredResponse& sample : group.samples) {
      ++report.responses;
      ++source.responses;
      report.score_sum += sample.reward.score;
      source.score_sum += sample.reward.score;
      lengths += static_cast<double>(sample.response.tokens.size());
      if (sample.response.reason == batch::FinishReason::kLength) ++report.truncated;
    }
  }
  report.mean_length = lengths / static_cast<double>(report.responses);
  return report;
}

}  // namespace rondo::rl
