#include "rl/step_metrics.h"

#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <string>

namespace rondo::rl {
namespace {

using metrics::Nature;
using metrics::StepRecord;

bool has_no_variance(const ScoredGroup& group) {
  const double first = group.samples.front().reward.score;
  return std::all_of(group.samples.begin(), group.samples.end(),
                     [&](const ScoredResponse& s) { return s.reward.score == first; });
}

void add_reward_extras(StepRecord& record, std::span<const ScoredGroup> groups) {
  std::map<std::string, std::vector<double>> extras;
  for (const ScoredGroup& group : groups)
    for (const ScoredResponse& sample : group.samples)
      for (const auto& [name, value] : sample.reward.extra) extras[name].push_back(value);
  for (const auto& [name, values] : extras) {
    double sum = 0;
    for (double v : values) sum += v;
    record.set("reward_extra/" + name + "/mean", sum / static_cast<double>(values.size()));
  }
}

// Mean over all sampled tokens, in issue order.
double mean_entropy(std::span<const ScoredGroup> groups) {
  double sum = 0;
  std::int64_t count = 0;
  for (const ScoredGroup& group : groups)
    for (const ScoredResponse& sample : group.samples)
      for (float h : sample.response.entropies) {
        sum += h;
        ++count;
      }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

struct Totals {
  std::int64_t prompt_tokens = 0;
  std::int64_t response_tokens = 0;
  std::int64_t longest = 0;
};

Totals totals_of(std::span<const ScoredGroup> groups) {
  Totals t;
  for (const ScoredGroup& group : groups)
    for (const ScoredResponse& sample : group.samples) {
      const auto length = static_cast<std::int64_t>(sample.response.tokens.size());
      t.prompt_tokens += static_cast<std::int64_t>(group.prompt->tokens->size());
      t.response_tokens += length;
      t.longest = std::max(t.longest, length);
    }
  return t;
}

double ratio(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

void add_draft_metrics(StepRecord& record, const GenerationStats& stats) {
  record.set("spec/accept_len", 1.0 + ratio(stats.accepted_tokens, stats.drafting.sequence_steps),
             Nature::kMeasured);
  record.set("spec/accept_rate", ratio(stats.accepted_tokens, stats.drafted_tokens), Nature::kMeasured);
  record.set("spec/draft_hit", ratio(stats.drafting.hits, stats.drafting.queries), Nature::kMeasured);
  record.set("spec/gamma", ratio(stats.drafting.wanted_tokens, stats.drafting.sequence_steps),
             Nature::kMeasured);
}

}  // namespace

void add_rollout_metrics(StepRecord& record, std::span<const ScoredGroup> groups,
                         std::span<const std::vector<float>> advantages) {
  std::vector<double> scores, lengths, prompt_lengths, flat_advantages;
  double truncated = 0, flat_groups = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (has_no_variance(groups[g])) ++flat_groups;
    for (std::size_t i = 0; i < groups[g].samples.size(); ++i) {
      const ScoredResponse& sample = groups[g].samples[i];
      scores.push_back(sample.reward.score);
      lengths.push_back(static_cast<double>(sample.response.tokens.size()));
      prompt_lengths.push_back(static_cast<double>(groups[g].prompt->tokens->size()));
      flat_advantages.push_back(advantages[g][i]);
      if (sample.response.reason == batch::FinishReason::kLength) ++truncated;
    }
  }
  record.add_stats("critic/score", scores);
  record.add_stats("critic/rewards", scores);
  record.add_stats("critic/advantages", flat_advantages);
  record.set("frac_reward_zero_std", flat_groups / static_cast<double>(groups.size()));
  add_reward_extras(record, groups);
  record.add_stats("response_length", lengths);
  record.set("response_length/clip_ratio", truncated / static_cast<double>(scores.size()));
  record.add_stats("prompt_length", prompt_lengths);
  record.set("actor/entropy", mean_entropy(groups));
}

void add_update_metrics(StepRecord& record, const UpdateSummary& summary, const train::LossConfig& loss) {
  const train::UnitReport& report = summary.report;
  const double tokens = std::max<double>(1, static_cast<double>(report.tokens));
  record.set("actor/loss", report.weighted_loss / summary.normalizer);
  record.set("actor/pg_loss", report.weighted_policy_loss / summary.normalizer);
  record.set("actor/pg_clipfrac", static_cast<double>(report.clipped_low + report.clipped_high) / tokens);
  record.set("clip_ratio/low_mean", static_cast<double>(report.clipped_low) / tokens);
  record.set("clip_ratio/high_mean", static_cast<double>(report.clipped_high) / tokens);
  record.set("actor/ppo_kl", report.ppo_kl / tokens);
  if (loss.kl_loss_coef > 0) {
    record.set("actor/kl_loss", report.weighted_kl / summary.normalizer);
    record.set("actor/kl_coef", double{loss.kl_loss_coef});
  }
  record.set("actor/grad_norm", summary.grad_norm);
  record.set("actor/lr", summary.lr);
  record.set("actor/updates", summary.updates);
  record.set("actor/skipped_units", summary.skipped_units);
  record.set("training/rollout_logprobs_diff_max", double{summary.first_update.max_logprob_error});
}

void add_performance_metrics(StepRecord& record, std::span<const ScoredGroup> groups,
                             const GenerationStats& stats, double step_seconds, double gen_seconds) {
  const Totals totals = totals_of(groups);
  const auto all = static_cast<double>(totals.prompt_tokens + totals.response_tokens);
  record.set("perf/total_num_tokens", totals.prompt_tokens + totals.response_tokens);
  record.set("perf/time_per_step", step_seconds, Nature::kMeasured);
  record.set("perf/throughput", all / step_seconds, Nature::kMeasured);
  record.set("perf/longest_sample_tokens_per_sec", static_cast<double>(totals.longest) / gen_seconds,
             Nature::kMeasured);
  record.set("perf/rollout_tokens_per_sec", static_cast<double>(totals.response_tokens) / gen_seconds,
             Nature::kMeasured);
  record.set("perf/max_memory_gb", static_cast<double>(peak_memory_bytes()) / double{1 << 30},
             Nature::kMeasured);
  record.set("rollout/preempted", stats.preemptions, Nature::kMeasured);
  const rollout::Dispatcher::Stats& dispatch = stats.dispatch;
  record.set("rollout/recomputed_tokens", stats.recomputed_tokens + dispatch.recomputed_tokens,
             Nature::kMeasured);
  record.set("rollout/chunks", dispatch.chunks, Nature::kMeasured);
  record.set("rollout/migrations", dispatch.migrations, Nature::kMeasured);
  record.set("rollout/migrated_bytes", dispatch.migrated_bytes, Nature::kMeasured);
  record.set("rollout/tail_time_frac", dispatch.seconds > 0 ? dispatch.tail_seconds / dispatch.seconds : 0.0,
             Nature::kMeasured);
  if (stats.drafting.sequence_steps > 0) add_draft_metrics(record, stats);
}

std::int64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace rondo::rl
