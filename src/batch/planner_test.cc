// Decisions worked out by hand.
#include "batch/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

namespace rondo::batch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::shared_ptr<const std::vector<Token>> prompt_of(std::int32_t num_tokens, Token first = 0) {
  std::vector<Token> tokens(static_cast<std::size_t>(num_tokens));
  std::iota(tokens.begin(), tokens.end(), first);
  return std::make_shared<const std::vector<Token>>(std::move(tokens));
}

class PlannerTest : public testing::Test {
 protected:
  void make(std::int32_t max_batch_tokens, std::int32_t max_running, std::int32_t num_blocks) {
    Planner::Config config;
    config.max_batch_tokens = max_batch_tokens;
    config.max_running = max_running;
    planner_ = *Planner::create(config, num_blocks);
  }

  // Request `id` alone in group 100 + id, or in the given one.
  void add(std::int64_t id, std::int32_t num_prompt, std::int32_t max_new, std::int64_t group = 0) {
    const SequenceSpec spec{.id = RequestId(id),
                            .group = GroupId(group == 0 ? 100 + id : group),
                            .prompt = prompt_of(num_prompt),
                            .max_new_tokens = max_new};
    const auto slot = planner_->add(spec);
    ASSERT_TRUE(slot) << slot.error().to_string();
  }

  // One step in which every sampled token is 7 and nothing stops, but for request `stops`.
  const Plan& step(std::optional<std::int64_t> stops = {}) {
    planner_->plan(plan_);
    std::vector<Sample> samples;
    for (const Segment& segment : plan_.segments) {
      if (!segment.wants_logits) continue;
      samples.push_back({.token = 7});
      if (stops == segment.id.value()) samples.back().finish = FinishReason::kStopString;
    }
    planner_->commit(plan_, samples, outcome_);
    planner_->check_invariants();
    return plan_;
  }

  // "id:begin-end" of each segment, with "!" where logits are wanted.
  static std::vector<std::string> spans_of(const Plan& plan) {
    std::vector<std::string> texts;
    for (const Segment& s : plan.segments) {
      texts.push_back(fmt::format("{}:{}-{}{}", s.id, s.begin, s.end, s.wants_logits ? "!" : ""));
    }
    return texts;
  }

  std::unique_ptr<Planner> planner_;
  Plan plan_;
  Planner::Outcome outcome_;
};

TEST_F(PlannerTest, EmptyPlanWithoutRequests) {
  make(8, 2, 4);
  EXPECT_TRUE(step().empty());
  EXPECT_EQ(planner_->stats().computed_tokens, 0);
}

TEST_F(PlannerTest, PrefillsInChunksThenDecodes) {
  make(4, 2, 4);
  add(1, 6, 3);
  const Plan& plan = step();
  EXPECT_THAT(spans_of(plan), ElementsAre("1:0-4"));
  EXPECT_THAT(plan.tokens, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(plan.positions, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(plan.logit_rows, IsEmpty());
  EXPECT_THAT(spans_of(step()), ElementsAre("1:4-6!"));
  EXPECT_THAT(plan.logit_rows, ElementsAre(1));
  EXPECT_THAT(spans_of(step()), ElementsAre("1:6-7!"));
  EXPECT_THAT(plan.tokens, ElementsAre(7));
  EXPECT_THAT(outcome_.finished, IsEmpty());
  EXPECT_THAT(spans_of(step()), ElementsAre("1:7-8!"));
  ASSERT_EQ(outcome_.finished.size(), 1U);
  EXPECT_EQ(outcome_.finished[0].reason, FinishReason::kLength);
  EXPECT_THAT(outcome_.finished[0].response, ElementsAre(7, 7, 7));
  EXPECT_EQ(planner_->num_live(), 0);
  EXPECT_EQ(planner_->roster().pool().num_free(), 4);
  EXPECT_EQ(planner_->stats().computed_tokens, 8);
}

TEST_F(PlannerTest, DecodesComeOutOfTheBudgetFirst) {
  make(5, 3, 8);
  add(1, 2, 9);
  add(2, 2, 9);
  EXPECT_THAT(spans_of(step()), ElementsAre("1:0-2!", "2:0-2!"));
  add(3, 7, 9);
  EXPECT_THAT(spans_of(step()), ElementsAre("1:2-3!", "2:2-3!", "3:0-3"));
  EXPECT_THAT(spans_of(step()), ElementsAre("1:3-4!", "2:3-4!", "3:3-6"));
  EXPECT_THAT(spans_of(step()), ElementsAre("1:4-5!", "2:4-5!", "3:6-7!"));
}

TEST_F(PlannerTest, PrefillIsFirstComeFirstServed) {
  make(10, 3, 8);
  add(1, 15, 1);
  add(2, 8, 1);
  EXPECT_THAT(spans_of(step()), ElementsAre("1:0-10"));
  EXPECT_THAT(spans_of(step()), ElementsAre("1:10-15!", "2:0-5"));
}

TEST_F(PlannerTest, RunsAtMostMaxRunning) {
  make(100, 2, 8);
  for (int id = 1; id <= 3; ++id) add(id, 2, 2);
  EXPECT_THAT(spans_of(step()), ElementsAre("1:0-2!", "2:0-2!"));
  EXPECT_THAT(spans_of(step()), ElementsAre("1:2-3!", "2:2-3!"));
  EXPECT_THAT(spans_of(step()), ElementsAre("3:0-2!"));
}

TEST_F(PlannerTest, SiblingsWaitForThePromptThenShareIt) {
  make(200, 8, 16);
  add(1, 150, 9, 50);
  add(2, 150, 9, 50);
  add(3, 20, 9);
  // 150 positions: blocks 0, 1, 2. Request 2 is passed over, request 3 is not held up.
  EXPECT_THAT(spans_of(step()), ElementsAre("1:0-150!", "3:0-20!"));
  const Plan& plan = step();
  EXPECT_THAT(spans_of(plan), ElementsAre("1:150-151!", "3:20-21!", "2:149-150!"));
  const auto leader = plan.table(plan.segments[0]);
  const auto sibling = plan.table(plan.segments[2]);
  ASSERT_EQ(sibling.size(), 3U);
  EXPECT_EQ(sibling[0], leader[0]);
  EXPECT_EQ(sibling[1], leader[1]);
  EXPECT_NE(sibling[2], leader[2]);
  EXPECT_THAT(plan.copies, ElementsAre(kv::BlockCopy{leader[2], sibling[2], 149 - 128}));
  EXPECT_EQ(planner_->stats().shared_prompt_tokens, 149);
  EXPECT_EQ(planner_->roster().pool().ref_count(leader[0]), 2);
}

TEST_F(PlannerTest, NoCopyWhereTheSharedPartEndsWithABlock) {
  make(200, 8, 16);
  add(1, 129, 9, 50);
  add(2, 129, 9, 50);
  step();
  const Plan& plan = step();
  EXPECT_THAT(spans_of(plan), ElementsAre("1:129-130!", "2:128-129!"));
  EXPECT_THAT(plan.copies, IsEmpty());
}

TEST_F(PlannerTest, OneTokenPromptHasNothingToShare) {
  make(8, 8, 16);
  add(1, 1, 2, 50);
  add(2, 1, 2, 50);
  EXPECT_THAT(spans_of(step()), ElementsAre("1:0-1!", "2:0-1!"));
}

TEST_F(PlannerTest, PromptOutlivesItsSampleForWaitingSiblings) {
  make(200, 1, 16);
  for (int id = 1; id <= 3; ++id) add(id, 100, 1, 50);
  EXPECT_THAT(spans_of(step()), ElementsAre("1:0-100!"));
  EXPECT_EQ(planner_->roster().pool().num_free(), 14);  // kept
  EXPECT_THAT(spans_of(step()), ElementsAre("2:99-100!"));
  EXPECT_THAT(plan_.copies, IsEmpty());  // taken over whole
  EXPECT_THAT(spans_of(step()), ElementsAre("3:99-100!"));
  EXPECT_EQ(planner_->roster().pool().num_free(), 16);  // nobody is left to want it
}

TEST_F(PlannerTest, KeptPromptEndsWithTheLastSiblingThatWaits) {
  make(200, 1, 16);
  add(1, 100, 1, 50);
  add(2, 100, 1, 50);
  step();
  EXPECT_EQ(planner_->roster().pool().num_free(), 14);
  EXPECT_TRUE(planner_->cancel(RequestId(2)));
  planner_->check_invariants();
  EXPECT_EQ(planner_->roster().pool().num_free(), 16);
}

TEST_F(PlannerTest, SiblingsAfterATakeOverShareInTheSameStep) {
  make(200, 8, 16);
  for (int id = 1; id <= 3; ++id) add(id, 100, 1, 50);
  step();
  const Plan& plan = step();
  EXPECT_THAT(spans_of(plan), ElementsAre("2:99-100!", "3:99-100!"));
  const auto first = plan.table(plan.segments[0]);
  const auto second = plan.table(plan.segments[1]);
  EXPECT_EQ(first[0], second[0]);
  EXPECT_THAT(plan.copies, ElementsAre(kv::BlockCopy{first[1], second[1], 99 - 64}));
}

TEST_F(PlannerTest, NextSiblingLeadsIfTheLeaderIsCancelled) {
  make(40, 8, 16);
  add(1, 100, 5, 50);
  add(2, 100, 5, 50);
  EXPECT_THAT(spans_of(step()), ElementsAre("1:0-40"));
  EXPECT_TRUE(planner_->cancel(RequestId(1)));
  EXPECT_THAT(spans_of(step()), ElementsAre("2:0-40"));
}

TEST_F(PlannerTest, AdmissionLeavesABlockForEachThatCanGrow) {
  make(300, 4, 4);
  add(1, 126, 30);  // 2 blocks, a third for position 128
  add(2, 30, 60);   // 1 block, a second for position 64: 2 + 1 and one spare each is more than 4
  EXPECT_THAT(spans_of(step()), ElementsAre("1:0-126!"));
  while (planner_->num_live() == 2) EXPECT_EQ(step().segments.size(), 1U);
  EXPECT_THAT(spans_of(step()), ElementsAre("2:0-30!"));
}

TEST_F(PlannerTest, LatestArrivalIsPreemptedAndKeepsItsTokens) {
  make(300, 4, 4);
  add(1, 60, 190);
  add(2, 60, 100);
  EXPECT_THAT(spans_of(step()), ElementsAre("1:0-60!", "2:0-60!"));
  for (int i = 0; i < 70; ++i) step();  // 131 known tokens each
  EXPECT_EQ(planner_->stats().preemptions, 1);
  const Sequence& second = planner_->roster().sequence(*planner_->roster().find(RequestId(2)));
  EXPECT_EQ(second.state(), SequenceState::kWaiting);
  EXPECT_EQ(second.num_known(), 129);  // position 128 needed the fifth block
  while (planner_->num_live() == 2) step();
  ASSERT_THAT(spans_of(step()), ElementsAre("2:0-129!"));
  EXPECT_EQ(planner_->stats().recomputed_tokens, 128);
  while (planner_->num_live() > 0) step();
  EXPECT_EQ(outcome_.finished[0].response.size(), 100U);
  EXPECT_EQ(planner_->stats().computed_tokens, (60 + 189) + (60 + 99) + 128);
}

TEST_F(PlannerTest, KeptPromptIsGivenUpBeforeAnyoneIsPreempted) {
  make(300, 2, 6);
  add(1, 100, 1, 50);  // 2 blocks, kept for request 4 when it ends
  add(2, 60, 90);      // up to 3 blocks
  add(3, 10, 90);      // up to 2 blocks
  add(4, 100, 1, 50);  // waits for a running place
  EXPECT_THAT(spans_of(step()), ElementsAre("1:0-100!", "2:0-60!"));
  EXPECT_THAT(spans_of(step()), ElementsAre("2:60-61!", "3:0-10!"));
  while (plan_.evictions.empty()) step();
  EXPECT_THAT(plan_.evictions, ElementsAre(GroupId(50)));
  EXPECT_EQ(plan_.segments[0].end, 129);  // position 128 of request 2 needed a block
  EXPECT_EQ(planner_->stats().preemptions, 0);
  while (planner_->num_live() == 3) step();
  EXPECT_EQ(outcome_.finished[0].id, RequestId(2));
  EXPECT_EQ(spans_of(step()).back(), "4:0-100!");
}

TEST_F(PlannerTest, KeptPromptMakesNoRoomForTheOneThatTakesItOver) {
  make(300, 3, 6);
  add(1, 60, 80, 50);
  add(2, 60, 190);  // up to 4 blocks
  add(3, 60, 100, 50);
  while (planner_->num_live() == 3) step();
  EXPECT_EQ(planner_->stats().preemptions, 1);  // of request 3, which knows 128 tokens: 2 blocks, later 3
  EXPECT_EQ(planner_->roster().prefixes().entries().size(), 1U);
  EXPECT_EQ(planner_->roster().pool().num_free(), 2);
  // It brings one block, needs another, and both sequences may grow: 3 blocks.
  while (planner_->num_live() == 2) ASSERT_EQ(step().segments.size(), 1U);
  EXPECT_THAT(spans_of(step()), ElementsAre("3:59-128!"));
}

TEST_F(PlannerTest, AKeptPromptOutlivesItsSamplesUntilItIsDropped) {
  make(300, 2, 6);
  for (std::int64_t id = 1; id < 4; ++id) {
    ASSERT_TRUE(planner_->add({.id = RequestId(id),
                               .group = GroupId(50),
                               .prompt = prompt_of(100),
                               .max_new_tokens = 1,
                               .keep_prompt = true}));
    EXPECT_EQ(spans_of(step()).back(), std::to_string(id) + (id == 1 ? ":0-100!" : ":99-100!"));
    EXPECT_EQ(planner_->num_live(), 0);
    EXPECT_EQ(planner_->roster().pool().num_free(), 4);
  }
  EXPECT_FALSE(planner_->add({.id = RequestId(9), .group = GroupId(50), .prompt = prompt_of(9)}))
      << "the kept prompt is another one";
  planner_->drop_prompt(GroupId(50));
  planner_->drop_prompt(GroupId(51));
  planner_->check_invariants();
  EXPECT_EQ(planner_->roster().pool().num_free(), 6);
  add(5, 100, 1, 50);
  EXPECT_EQ(spans_of(step()).back(), "5:0-100!");
  EXPECT_EQ(planner_->roster().pool().num_free(), 6);
}

TEST_F(PlannerTest, DropKvMakesAllWaitAndRecompute) {
  make(300, 8, 16);
  add(1, 10, 9, 50);
  add(2, 10, 9, 50);
  step();
  step();
  planner_->drop_kv();
  planner_->check_invariants();
  EXPECT_EQ(planner_->roster().pool().num_free(), 16);
  EXPECT_THAT(spans_of(step()), ElementsAre("1:0-12!"));
  EXPECT_THAT(spans_of(step()), ElementsAre("1:12-13!", "2:9-11!"));
  EXPECT_EQ(planner_->stats().preemptions, 0);
}

TEST_F(PlannerTest, StopFromTheEngineEndsTheResponse) {
  make(8, 2, 4);
  add(1, 2, 5);
  step();
  step(1);
  ASSERT_EQ(outcome_.finished.size(), 1U);
  EXPECT_EQ(outcome_.finished[0].reason, FinishReason::kStopString);
  EXPECT_THAT(outcome_.finished[0].response, ElementsAre(7, 7));
  EXPECT_EQ(finish_reason_name(outcome_.finished[0].reason), "stop_string");
}

TEST_F(PlannerTest, CancelReturnsTheTokensSoFar) {
  make(8, 2, 4);
  add(1, 2, 5);
  step();
  const auto finished = planner_->cancel(RequestId(1));
  ASSERT_TRUE(finished);
  EXPECT_EQ(finished->reason, FinishReason::kCancelled);
  EXPECT_THAT(finished->response, ElementsAre(7));
  EXPECT_FALSE(planner_->cancel(RequestId(1)));
  EXPECT_TRUE(step().empty());
}

TEST_F(PlannerTest, RefusesWhatCanNeverRun) {
  make(8, 2, 4);
  const auto refused = [this](SequenceSpec spec) { return planner_->add(std::move(spec)).error().message(); };
  SequenceSpec spec{.id = RequestId(1), .group = GroupId(1), .prompt = prompt_of(200), .max_new_tokens = 58};
  EXPECT_THAT(refused(spec), HasSubstr("needs 5 KV blocks of 64 tokens, the pool has 4"));
  spec.max_new_tokens = 0;
  EXPECT_THAT(refused(spec), HasSubstr("max_new_tokens is 0"));
  spec.max_new_tokens = 2'000'000'000;
  EXPECT_THAT(refused(spec), HasSubstr("the pool has 4"));
  spec.prompt = prompt_of(0);
  EXPECT_THAT(refused(spec), HasSubstr("the prompt is empty"));
  spec.prompt = nullptr;
  EXPECT_THAT(refused(spec), HasSubstr("the prompt is empty"));
  EXPECT_EQ(planner_->num_live(), 0);

  spec = {.id = RequestId(1), .group = GroupId(1), .prompt = prompt_of(200), .max_new_tokens = 57};
  ASSERT_TRUE(planner_->add(spec));  // 256 positions: exactly 4 blocks
  EXPECT_THAT(refused(spec), HasSubstr("request 1 is already running"));
  spec.id = RequestId(2);
  spec.prompt = prompt_of(200, 1);
  EXPECT_THAT(refused(spec), HasSubstr("differs from that of its group 1"));
  planner_->check_invariants();
}

TEST_F(PlannerTest, RefusedRequestLeavesThePlanValid) {
  make(8, 2, 4);
  add(1, 2, 5);
  planner_->plan(plan_);
  EXPECT_FALSE(planner_->add(SequenceSpec{}));
  planner_->commit(plan_, std::vector<Sample>(1), outcome_);
}

TEST_F(PlannerTest, ConfigIsValidated) {
  Planner::Config config;
  EXPECT_TRUE(config.validate());
  config.max_batch_tokens = 10;
  config.max_running = 11;
  EXPECT_THAT(config.validate().error().message(),
              HasSubstr("max_batch_tokens (10) is below max_running (11)"));
  config.max_running = 0;
  EXPECT_THAT(config.validate().error().message(), HasSubstr("max_running is 0"));
  EXPECT_FALSE(Planner::create(config, 4));
  EXPECT_THAT(Planner::create({}, 0).error().message(), HasSubstr("the KV pool has 0 blocks"));
}

TEST_F(PlannerTest, ConfigVisitsEveryField) {
  struct Names {
    std::vector<std::string> names;
    void field(const char* name, std::int32_t& value, const char* doc) {
      names.emplace_back(name);
      EXPECT_GT(value, 0);
      EXPECT_STRNE(doc, "");
    }
  };
  Planner::Config config;
  Names names;
  config.visit(names);
  EXPECT_THAT(names.names, ElementsAre("max_batch_tokens", "max_running"));
}

using PlannerDeathTest = PlannerTest;

TEST_F(PlannerDeathTest, StalePlanAborts) {
  make(8, 2, 4);
  add(1, 2, 5);
  planner_->plan(plan_);
  add(2, 2, 5);
  EXPECT_DEATH(planner_->commit(plan_, std::vector<Sample>(1), outcome_), "version");
  planner_->plan(plan_);
  EXPECT_DEATH(planner_->commit(plan_, std::vector<Sample>(1), outcome_), "samples");
}

}  // namespace
}  // namespace rondo::batch
