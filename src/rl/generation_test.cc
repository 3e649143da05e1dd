#include "rl/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rl/tiny_run.h"

namespace rondo::rl {
namespace {

using ::testing::HasSubstr;

class GenerationTest : public ::testing::Test {
 protected:
  explicit GenerationTest(const std::vector<std::string>& overrides = {})
      : config_(tiny_.config("run", overrides)), session_(Session::open(config_).value()) {
    set_ = load_prompts(config_.data.train_files, config_.data, config_.model.path, *session_->tokenizer,
                        data::GroundTruth::kRequired)
               .value();
    for (const Prompt& prompt : set_.prompts) prompts_.push_back(&prompt);
  }

  GenerationTask task(std::size_t prompts) const {
    return {.prompts = std::span(prompts_).first(prompts),
            .sampling = &config_.rollout.sampling,
            .purpose = RngPurpose::kRollout,
            .step = 1};
  }

  std::vector<ScoredGroup> run(const GenerationTask& task, const reward::RewardFunction& reward = {}) {
    GenerationStats stats;
    auto groups = generate(*session_, task, reward, not_interrupted(), stats);
    EXPECT_TRUE(groups) << groups.error().message();
    return groups ? *std::move(groups) : std::vector<ScoredGroup>{};
  }

  static void expect_same(const std::vector<ScoredGroup>& a, const std::vector<ScoredGroup>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t g = 0; g < a.size(); ++g) {
      EXPECT_EQ(a[g].prompt, b[g].prompt);
      ASSERT_EQ(a[g].samples.size(), b[g].samples.size());
      for (std::size_t i = 0; i < a[g].samples.size(); ++i) {
        EXPECT_EQ(a[g].samples[i].response.tokens, b[g].samples[i].response.tokens);
        EXPECT_EQ(a[g].samples[i].response.logprobs, b[g].samples[i].response.logprobs);
        EXPECT_EQ(a[g].samples[i].response.entropies, b[g].samples[i].response.entropies);
      }
    }
  }

  TinyRun tiny_;
  Config config_;
  std::unique_ptr<Session> session_;
  PromptSet set_;
  std::vector<const Prompt*> prompts_;
};

// Scores the number of bytes of the response; remembers what it was asked.
reward::RewardFunction length_reward(std::vector<std::string>* truths = nullptr) {
  return [truths](const reward::RewardInput& input) -> Result<reward::RewardResult> {
    if (truths != nullptr) truths->push_back(std::string(input.ground_truth));
    return reward::RewardResult{.score = static_cast<double>(input.response.size()), .extra = {}};
  };
}

TEST_F(GenerationTest, EveryGroupIsWholeAndScored) {
  const Token end = run(task(1))[0].samples[0].response.tokens[5];  // so that some responses end early
  session_->stop =
      std::make_shared<const engine::StopRules>(engine::StopRules{.tokens = {end}, .strings = {}});
  std::int64_t id = 0;
  int num_ended = 0;
  std::vector<std::string> truths;
  std::vector<std::int64_t> done;
  GenerationStats stats;
  const auto groups = generate(*session_, task(3), length_reward(&truths), not_interrupted(), stats,
                               [&](std::int64_t so_far, std::int64_t total) {
                                 EXPECT_EQ(total, 12);
                                 done.push_back(so_far);
                               });
  ASSERT_TRUE(groups) << groups.error().message();
  ASSERT_EQ(groups->size(), 3u);
  for (std::size_t g = 0; g < 3; ++g) {
    EXPECT_EQ((*groups)[g].prompt, prompts_[g]);
    ASSERT_EQ((*groups)[g].samples.size(), 4u);
    for (const ScoredResponse& sample : (*groups)[g].samples) {
      const auto size = sample.response.tokens.size();
      ASSERT_GE(size, 1u);
      EXPECT_EQ(sample.response.id.value(), id++);
      EXPECT_EQ(sample.response.logprobs.size(), size);
      EXPECT_EQ(sample.response.entropies.size(), size);
      EXPECT_EQ(sample.reward.score, static_cast<double>(sample.text.size()));
      const bool ended = sample.response.reason == batch::FinishReason::kStopToken;
      EXPECT_EQ(ended, sample.response.tokens.back() == end);
      EXPECT_EQ(std::ranges::count(sample.response.tokens, end), ended ? 1 : 0);
      if (ended) {
        ++num_ended;
        EXPECT_LE(size, 16u);
      } else {
        EXPECT_EQ(sample.response.reason, batch::FinishReason::kLength);
        EXPECT_EQ(size, 16u);
      }
      const auto shown = std::span(sample.response.tokens).first(ended ? size - 1 : size);
      EXPECT_EQ(sample.text, session_->tokenizer->decode(shown, true));
    }
  }
  // Both kinds of end occur.
  EXPECT_GT(num_ended, 0);
  EXPECT_LT(num_ended, 12);
  EXPECT_EQ(std::count(truths.begin(), truths.end(), "2"), 4);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done.back(), 12);
}

TEST_F(GenerationTest, SamplesDifferAndRepeatExactly) {
  const auto first = run(task(3));
  EXPECT_NE(first[0].samples[0].response.tokens, first[0].samples[1].response.tokens);
  expect_same(run(task(3)), first);
}

TEST_F(GenerationTest, AGroupDoesNotDependOnTheGroupsAfterIt) {
  const auto all = run(task(6));
  expect_same(run(task(1)), {all[0]});
}

TEST_F(GenerationTest, StepPurposeAndOrdinalKeyTheRandomNumbers) {
  const auto tokens = [&](const GenerationTask& t) { return run(t)[0].samples[0].response.tokens; };
  const auto base = tokens(task(1));
  GenerationTask other = task(1);
  other.step = 2;
  EXPECT_NE(tokens(other), base);
  other = task(1);
  other.purpose = RngPurpose::kEval;
  EXPECT_NE(tokens(other), base);
  const std::vector<const Prompt*> twice = {prompts_[0], prompts_[0]};
  other = task(1);
  other.prompts = twice;
  const auto groups = run(other);
  EXPECT_EQ(groups[0].samples[0].response.tokens, base);
  EXPECT_NE(groups[1].samples[0].response.tokens, base);
}

TEST_F(GenerationTest, GreedySamplesAreAllTheSame) {
  SamplingSection greedy{.n = 3, .params = {.temperature = 0.0F}};
  GenerationTask t = task(2);
  t.sampling = &greedy;
  for (const ScoredGroup& group : run(t)) {
    ASSERT_EQ(group.samples.size(), 3u);
    for (const ScoredResponse& sample : group.samples) {
      EXPECT_EQ(sample.response.tokens, group.samples[0].response.tokens);
      EXPECT_EQ(sample.reward.score, 0);
    }
  }
}

TEST_F(GenerationTest, InterruptionLeavesTheEngineIdleAndUsable) {
  const auto whole = run(task(6));
  std::atomic<bool> interrupted{false};
  GenerationStats stats;
  std::int64_t finished = 0;
  const auto cut = generate(*session_, task(6), {}, interrupted, stats, [&](std::int64_t done, std::int64_t) {
    finished = done;
    interrupted = true;
  });
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code(), Code::kCancelled);
  EXPECT_LT(finished, 24);
  EXPECT_TRUE(session_->inference->engine().idle());
  expect_same(run(task(6)), whole);
}

TEST_F(GenerationTest, InterruptedBeforeItBeginsItGeneratesNothing) {
  const std::atomic<bool> interrupted{true};
  GenerationStats stats;
  const auto before = session_->inference->engine().stats().computed_tokens;
  const auto cut = generate(*session_, task(6), {}, interrupted, stats);
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code(), Code::kCancelled);
  EXPECT_EQ(session_->inference->engine().stats().computed_tokens, before);
  EXPECT_TRUE(session_->inference->engine().idle());
}

TEST_F(GenerationTest, FailedRewardNamesThePromptAndLeavesTheEngineUsable) {
  const auto whole = run(task(2));
  const reward::RewardFunction failing =
      [](const reward::RewardInput& input) -> Result<reward::RewardResult> {
    if (input.ground_truth == "1") return fail(Code::kInvalidArgument, "cannot score this");
    return reward::RewardResult{};
  };
  GenerationStats stats;
  const auto cut = generate(*session_, task(2), failing, not_interrupted(), stats);
  ASSERT_FALSE(cut);
  EXPECT_THAT(cut.error().message(), HasSubstr("train.jsonl:2: cannot score this"));
  EXPECT_TRUE(session_->inference->engine().idle());
  expect_same(run(task(2)), whole);
}

TEST_F(GenerationTest, RequestThatCannotRunIsRefusedWhole) {
  const Prompt alien{.row = {}, .text = "", .tokens = std::make_shared<const std::vector<Token>>(1, 300)};
  const std::vector<const Prompt*> prompts = {prompts_[0], &alien};
  GenerationTask t = task(1);
  t.prompts = prompts;
  GenerationStats stats;
  const auto refused = generate(*session_, t, {}, not_interrupted(), stats);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(),
              HasSubstr("token id 300 lies outside the model's vocabulary of 260"));
  EXPECT_TRUE(session_->inference->engine().idle());
}

class SmallPoolGenerationTest : public GenerationTest {
 protected:
  SmallPoolGenerationTest()
      : GenerationTest(
            {"engine.kv_memory=48KiB", "data.max_response_length=150", "rollout.policy=group_round_robin"}) {}
};

TEST_F(SmallPoolGenerationTest, PreemptionsAreCountedPerCall) {
  GenerationStats first, second;
  ASSERT_TRUE(generate(*session_, task(3), {}, not_interrupted(), first));
  session_->inference->new_policy_version();
  ASSERT_TRUE(generate(*session_, task(3), {}, not_interrupted(), second));
  EXPECT_GT(first.preemptions, 0);
  EXPECT_GT(first.recomputed_tokens, 0);
  // How many there are hangs on when the instance looks into its inbox.
  const batch::Planner::Stats sum = session_->inference->engine_stats();
  EXPECT_EQ(first.preemptions + second.preemptions, sum.preemptions);
  EXPECT_EQ(first.recomputed_tokens + second.recomputed_tokens, sum.recomputed_tokens);
}

TEST_F(GenerationTest, ExactLengthsEndResponsesThereAndNowhereElse) {
  std::vector<std::int32_t> lengths;
  for (int i = 0; i < 12; ++i) lengths.push_back(1 + (7 * i) % 16);
  GenerationTask exact = task(3);
  exact.exact_lengths = lengths;
  const auto natural = run(task(3));
  const auto groups = run(exact);
  std::size_t i = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t s = 0; s < groups[g].samples.size(); ++s) {
      const std::vector<Token>& tokens = groups[g].samples[s].response.tokens;
      const std::vector<Token>& free = natural[g].samples[s].response.tokens;
      ASSERT_EQ(std::ssize(tokens), lengths[i++]);
      const std::size_t common = std::min(tokens.size(), free.size());
      EXPECT_TRUE(
          std::equal(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(common), free.begin()));
    }
  }
}

}  // namespace
}  // namespace rondo::rl
