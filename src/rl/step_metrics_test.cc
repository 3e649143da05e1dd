#include "rl/step_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rondo::rl {
namespace {

using metrics::Nature;
using metrics::StepRecord;

ScoredResponse response(std::size_t tokens, double score, batch::FinishReason reason, float entropy) {
  ScoredResponse sample;
  sample.response.tokens.assign(tokens, 7);
  sample.response.logprobs.assign(tokens, -1.0F);
  sample.response.entropies.assign(tokens, entropy);
  sample.response.reason = reason;
  sample.reward.score = score;
  sample.reward.extra = {{"acc", score == 1 ? 1.0 : 0.0}};
  return sample;
}

// Two groups of two: prompts of 3 and 5 tokens, responses of 2, 4, 6 and 8.
class StepMetricsTest : public ::testing::Test {
 protected:
  StepMetricsTest() {
    using enum batch::FinishReason;
    for (const std::size_t length : {3, 5})
      prompts_.push_back({{}, "", std::make_shared<const std::vector<Token>>(length, 1)});
    groups_.push_back({prompts_.data(), {response(2, 1, kStopToken, 1), response(4, 0, kLength, 2)}});
    groups_.push_back(
        {prompts_.data() + 1, {response(6, 0.5, kStopString, 3), response(8, 0.5, kLength, 0.5F)}});
  }
  std::vector<Prompt> prompts_;
  std::vector<ScoredGroup> groups_;
};

void expect_all_of_nature(const StepRecord& record, Nature nature) {
  for (const StepRecord::Entry& entry : record.entries()) EXPECT_EQ(entry.nature, nature) << entry.name;
}

TEST_F(StepMetricsTest, RolloutMetricsByHand) {
  StepRecord record;
  const std::vector<std::vector<float>> advantages = {{0.75F, -0.75F}, {0, 0}};
  add_rollout_metrics(record, groups_, advantages);
  const std::vector<std::pair<const char*, double>> expected = {
      {"critic/score/mean", 0.5},
      {"critic/score/max", 1},
      {"critic/score/min", 0},
      {"critic/rewards/mean", 0.5},
      {"critic/rewards/max", 1},
      {"critic/rewards/min", 0},
      {"critic/advantages/mean", 0},
      {"critic/advantages/max", 0.75},
      {"critic/advantages/min", -0.75},
      {"frac_reward_zero_std", 0.5},
      {"reward_extra/acc/mean", 0.25},
      {"response_length/mean", 5},
      {"response_length/max", 8},
      {"response_length/min", 2},
      {"response_length/clip_ratio", 0.5},
      {"prompt_length/mean", 4},
      {"prompt_length/max", 5},
      {"prompt_length/min", 3},
      {"actor/entropy", (2 * 1 + 4 * 2 + 6 * 3 + 8 * 0.5) / 20}};
  for (const auto& [name, value] : expected) EXPECT_EQ(record.find(name), value) << name;
  EXPECT_EQ(record.entries().size(), expected.size());
  expect_all_of_nature(record, Nature::kDeterministic);
}

UpdateSummary summary_by_hand() {
  UpdateSummary summary;
  summary.report.tokens = 20;
  summary.report.weighted_loss = 6;
  summary.report.weighted_policy_loss = 4;
  summary.report.weighted_kl = 2;
  summary.report.ppo_kl = 5;
  summary.report.clipped_low = 1;
  summary.report.clipped_high = 4;
  summary.first_update.max_logprob_error = 0.125F;
  summary.normalizer = 8;
  summary.grad_norm = 0.5;
  summary.lr = 1e-5;
  summary.updates = 3;
  summary.units = 5;
  summary.skipped_units = 2;
  return summary;
}

TEST_F(StepMetricsTest, UpdateMetricsByHand) {
  StepRecord record;
  add_update_metrics(record, summary_by_hand(), {.kl_loss_coef = 0.25F});
  const std::vector<std::pair<const char*, double>> expected = {
      {"actor/loss", 0.75},
      {"actor/pg_loss", 0.5},
      {"actor/pg_clipfrac", 0.25},
      {"clip_ratio/low_mean", 0.05},
      {"clip_ratio/high_mean", 0.2},
      {"actor/ppo_kl", 0.25},
      {"actor/kl_loss", 0.25},
      {"actor/kl_coef", 0.25},
      {"actor/grad_norm", 0.5},
      {"actor/lr", 1e-5},
      {"actor/updates", 3},
      {"actor/skipped_units", 2},
      {"training/rollout_logprobs_diff_max", 0.125}};
  for (const auto& [name, value] : expected) EXPECT_EQ(record.find(name), value) << name;
  EXPECT_EQ(record.entries().size(), expected.size());
  expect_all_of_nature(record, Nature::kDeterministic);
}

TEST_F(StepMetricsTest, WithoutAKlTermOrAnyUpdate) {
  StepRecord record;
  add_update_metrics(record, UpdateSummary{.report = {}, .first_update = {}, .normalizer = 20}, {});
  EXPECT_FALSE(record.find("actor/kl_loss"));
  EXPECT_FALSE(record.find("actor/kl_coef"));
  EXPECT_EQ(record.find("actor/loss"), 0);
  EXPECT_EQ(record.find("actor/pg_clipfrac"), 0);  // of no tokens
  EXPECT_EQ(record.find("actor/updates"), 0);
}

TEST_F(StepMetricsTest, PerformanceMetricsByHand) {
  StepRecord record;
  const GenerationStats stats{.reward_seconds = 0,
                              .preemptions = 3,
                              .recomputed_tokens = 70,
                              .dispatch = {.chunks = 12,
                                           .migrations = 5,
                                           .migrated_bytes = 4096,
                                           .recomputed_tokens = 9,
                                           .seconds = 2.0,
                                           .tail_seconds = 0.5}};
  add_performance_metrics(record, groups_, stats, 4, 2);
  // A prompt counts once per response: 2 * 3 + 2 * 5 prompt tokens, 20 of responses.
  EXPECT_EQ(record.find("perf/total_num_tokens"), 36);
  EXPECT_EQ(record.find("perf/throughput"), 9);
  EXPECT_EQ(record.find("perf/rollout_tokens_per_sec"), 10);
  EXPECT_EQ(record.find("perf/longest_sample_tokens_per_sec"), 4);
  EXPECT_EQ(record.find("perf/time_per_step"), 4);
  EXPECT_EQ(record.find("rollout/preempted"), 3);
  EXPECT_EQ(record.find("rollout/recomputed_tokens"), 79);  // after preemptions and between chunks
  EXPECT_EQ(record.find("rollout/chunks"), 12);
  EXPECT_EQ(record.find("rollout/migrations"), 5);
  EXPECT_EQ(record.find("rollout/migrated_bytes"), 4096);
  EXPECT_EQ(record.find("rollout/tail_time_frac"), 0.25);
  EXPECT_FALSE(record.find("spec/accept_len"));  // no speculation
  EXPECT_GT(record.find("perf/max_memory_gb"), 0);
  for (const StepRecord::Entry& entry : record.entries())
    EXPECT_EQ(entry.nature,
              entry.name == "perf/total_num_tokens" ? Nature::kDeterministic : Nature::kMeasured)
        << entry.name;
}

TEST_F(StepMetricsTest, DraftMetricsByHand) {
  StepRecord record;
  const GenerationStats stats{
      .drafted_tokens = 16,
      .accepted_tokens = 4,
      .drafting = {.sequence_steps = 10, .wanted_tokens = 24, .queries = 10, .hits = 8},
      .dispatch = {}};
  add_performance_metrics(record, groups_, stats, 4, 2);
  EXPECT_EQ(record.find("spec/accept_len"), 1.4);  // 4 accepted beside a token of each of 10 steps
  EXPECT_EQ(record.find("spec/accept_rate"), 0.25);
  EXPECT_EQ(record.find("spec/draft_hit"), 0.8);
  EXPECT_EQ(record.find("spec/gamma"), 2.4);
}

TEST_F(StepMetricsTest, PeakMemoryIsInBytesAndNeverFalls) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  std::int64_t with_block = 0;
  {
    const std::vector<char> block(kBytes, 1);
    EXPECT_EQ(block.back(), 1);
    with_block = peak_memory_bytes();
  }
  EXPECT_GE(with_block, static_cast<std::int64_t>(kBytes));
  EXPECT_LT(with_block, static_cast<std::int64_t>(64 * kBytes));
  EXPECT_GE(peak_memory_bytes(), with_block);
}

}  // namespace
}  // namespace rondo::rl
