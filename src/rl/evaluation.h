// Evaluation: the mean score over held-out prompts.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "metrics/step_record.h"
#include "rl/generation.h"
#include "rl/prompts.h"
#include "rl/session.h"

namespace rondo::rl {

/// Scores of one evaluation.
struct EvaluationReport {
  struct Source {
    std::int64_t responses = 0;
    double score_sum = 0;
  };
  std::map<std::string, Source> sources;  // by data_source
  std::int64_t responses = 0;
  double score_sum = 0;
  std::int64_t truncated = 0;  // ended by the length limit
  double mean_length = 0;

  double mean_score() const { return responses == 0 ? 0 : score_sum / static_cast<double>(responses); }
  /// Sets val-core/<source>/reward/mean@n and val-aux/*.
  void add_to(metrics::StepRecord& record, int n) const;
};

/// The mean score over `prompts` that add_to(record, n) logged, from the record's line; none where the line
/// lacks the score of a prompt's data source.
std::optional<double> logged_mean_score(std::string_view line, const PromptSet& prompts, int n);

/// Whether every prompt has a ground truth that some response can match; said before responses are generated.
Result<void> check_ground_truths(const reward::Config& config, const PromptSet& prompts);

/// Generates config.rollout.val.n responses to every prompt and scores them. `step` keys the random numbers.
Result<EvaluationReport> evaluate(Session& session, const PromptSet& prompts,
                                  const reward::RewardFunction& reward, std::uint32_t step,
                                  const std::atomic<bool>& interrupted,
                                  const GenerationProgress& progress = {});

}  // namespace rondo::rl
