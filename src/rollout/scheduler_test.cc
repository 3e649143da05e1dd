// Placement, reservation, failures and refusals on cases worked out by hand.
#include "rollout/scheduler.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rollout/scheduler_fixture.h"

namespace rondo::rollout {
namespace {

class SchedulerTest : public SchedulerFixture {
 protected:
  bool stays(int max_spread, int here, int there);
};

TEST_F(SchedulerTest, ReservesThePeakOfTheChunkAndCountsThePromptOnce) {
  make({.policy = Policy::kFifo, .chunk_tokens = 100}, {.draft_room_tokens = 8});
  add_instance(0, 30, 10);
  add(group(0, 2, 1000, 129));  // 128 positions are shared: 2 full blocks
  // 129 + 100 - 1 + 8 = 236 positions: 4 blocks, 2 of them shared.
  EXPECT_EQ(assign().reserved_blocks, 2);
  EXPECT_EQ(scheduler_->ledger().free_blocks(InstanceId(0)), 30 - 4);
  const Assignment second = assign();
  EXPECT_EQ(second.placement.cached_tokens, 128);
  EXPECT_EQ(scheduler_->ledger().free_blocks(InstanceId(0)), 30 - 6);
  // 129 + 40 - 1 positions remain: one private block, the rest of the reservation is free again.
  chunk_done(0, 40);
  EXPECT_EQ(scheduler_->ledger().free_blocks(InstanceId(0)), 30 - 5);
  finish(1, 5);
  EXPECT_EQ(scheduler_->ledger().free_blocks(InstanceId(0)), 30 - 3);
  EXPECT_EQ(assign().max_tokens, 100);
  finish(0, 50);
  EXPECT_EQ(scheduler_->ledger().free_blocks(InstanceId(0)), 30);
}

TEST_F(SchedulerTest, TheLastChunkIsWhatRemains) {
  make(Policy::kFifo, 100);
  add_instance(0);
  add(group(0, 1, 130));
  EXPECT_EQ(assign().max_tokens, 100);
  chunk_done(0, 100);
  const Assignment last = assign();
  EXPECT_EQ(last.max_tokens, 30);
  EXPECT_EQ(last.placement.source, KvSource::kResident);
  EXPECT_EQ(last.placement.cached_tokens, 65 + 100 - 1);
}

TEST_F(SchedulerTest, NothingOvertakesTheHead) {
  make({.policy = Policy::kFifo, .chunk_tokens = 1000});
  add_instance(0, 20, 10);
  add(group(0, 1, 600, 1));
  add(group(1, 1, 1000, 1));  // does not fit beside the first
  add(group(2, 1, 64, 1));    // would
  EXPECT_EQ(assign().request, RequestId(0));
  EXPECT_EQ(idle(), Idle::kNoRoom);
  finish(0, 600);
  EXPECT_EQ(serve_all(), (Order{10, 20}));
  EXPECT_EQ(idle(), Idle::kNothingWaiting);
}

TEST_F(SchedulerTest, MovesMuchKvAndRecomputesLittle) {
  for (const int generated : {503, 504}) {  // 10 + generated - 1 positions: 512 or 513
    make({.policy = Policy::kFifo, .chunk_tokens = 600, .max_spread = 0, .move_threshold = 512});
    add_instance(0, 40, 2);
    add(group(0, 1, 1200, 10));
    add(group(1, 1, 1200, 10));
    serve_all();
    add_instance(1, 40, 2);
    chunk_done(0, generated);
    // Instance 0 runs request 1 still, so the other one is less loaded.
    const Assignment next = assign();
    EXPECT_EQ(next.placement.instance, InstanceId(1));
    const bool moves = generated == 504;
    EXPECT_EQ(next.placement.source, moves ? KvSource::kMove : KvSource::kRecompute);
    EXPECT_EQ(next.placement.cached_tokens, moves ? 513 : 0);
    EXPECT_EQ(next.placement.moved_tokens, moves ? 513 : 0);
    EXPECT_EQ(next.placement.recomputed_tokens, moves ? 0 : 512);
    EXPECT_TRUE(next.placement.from == (moves ? on(0) : KvPlace{}));
  }
}

TEST_F(SchedulerTest, APromptIsMovedOnceItIsComputedAndNotBefore) {
  make({.policy = Policy::kFifo, .chunk_tokens = 600, .move_threshold = 0});
  add_instance(0, 1000, 1);
  add_instance(1, 1000, 1);
  add(group(0, 4, 1200, 130));
  EXPECT_EQ(assign().placement.instance, InstanceId(0));
  const Placement early = assign().placement;
  EXPECT_EQ(early.instance, InstanceId(1));
  EXPECT_EQ(early.source, KvSource::kResident);  // of nothing, to be computed
  EXPECT_EQ(early.cached_tokens, 0);
  finish(0, 500);
  add_instance(2, 1000, 1);
  EXPECT_EQ(assign().placement.cached_tokens, 129);  // the third, where the first was
  const Placement late = assign().placement;
  EXPECT_EQ(late.instance, InstanceId(2));
  EXPECT_EQ(late.source, KvSource::kMove);
  EXPECT_TRUE(late.from == on(0));
  EXPECT_EQ(late.moved_tokens, 129);
}

// Whether request 0 stays on instance 0, where `here` others run, when `there` run on instance 1.
bool SchedulerTest::stays(int max_spread, int here, int there) {
  make({.policy = Policy::kFifo, .chunk_tokens = 600, .max_spread = max_spread, .move_threshold = 100});
  add_instance(0, 1000, 40);
  for (int g = 0; g <= here; ++g) add(group(g, 1, 1200, 10));
  serve_all();
  add_instance(1, 1000, 40);
  for (int g = 100; g < 100 + there; ++g) add(group(g, 1, 1200, 10));
  serve_all();
  chunk_done(0, 600);
  const Assignment next = assign();
  const bool resident = next.placement.source == KvSource::kResident;
  EXPECT_EQ(next.placement.instance, InstanceId(resident ? 0 : 1));
  EXPECT_TRUE(resident || next.placement.source == KvSource::kMove);
  return resident;
}

TEST_F(SchedulerTest, CachedKvDecidesWithinTheSpread) {
  EXPECT_TRUE(stays(3, 16, 13));
  EXPECT_FALSE(stays(3, 16, 12));
  EXPECT_TRUE(stays(4, 16, 12));
}

TEST_F(SchedulerTest, CachedKvDecidesWithinAQuarterOfTheGreatestLoad) {
  EXPECT_FALSE(stays(32, 1, 0));
  EXPECT_FALSE(stays(32, 3, 2));
  EXPECT_TRUE(stays(32, 4, 3));
  EXPECT_TRUE(stays(32, 8, 6));
  EXPECT_FALSE(stays(32, 8, 5));
}

TEST_F(SchedulerTest, EvictsTheRequestServedLastToTheHost) {
  make({.policy = Policy::kFifo, .chunk_tokens = 700, .move_threshold = 100}, {.host_blocks = 100});
  add_instance(0, 33, 3);
  for (int g = 0; g < 3; ++g) add(group(g, 1, 1300, 1));
  serve_all();                                                     // 11 blocks each
  for (const int request : {0, 10, 20}) chunk_done(request, 640);  // 10 blocks each
  EXPECT_EQ(scheduler_->ledger().free_blocks(InstanceId(0)), 3);
  const Assignment next = assign();  // 1 + 640 + 700 - 1 positions: 21 blocks, 10 there
  EXPECT_EQ(next.request, RequestId(0));
  ASSERT_EQ(next.evictions.size(), 1U);
  EXPECT_EQ(next.evictions[0].request, RequestId(20));
  EXPECT_TRUE(next.evictions[0].from == on(0));
  EXPECT_EQ(next.evictions[0].to.tier, KvTier::kHost);
  EXPECT_EQ(idle(), Idle::kNoRoom);  // request 10 needs 21 blocks, and 12 do not run
  finish(0, 1300);
  EXPECT_EQ(assign().placement.source, KvSource::kResident);
  finish(10, 1300);
  const Assignment last = assign();
  EXPECT_EQ(last.placement.source, KvSource::kMove);
  EXPECT_EQ(last.placement.from.tier, KvTier::kHost);
  EXPECT_EQ(last.placement.moved_tokens, 640);
  EXPECT_EQ(scheduler_->ledger().blocks_used(KvTier::kHost), 0);
}

TEST_F(SchedulerTest, AnIdlePromptWaitsInTheHostForItsSamples) {
  make({.policy = Policy::kSeer, .chunk_tokens = 700, .move_threshold = 10}, {.host_blocks = 100});
  add_instance(0, 11, 1);  // one chunk, and nothing beside it
  for (int g = 0; g < 2; ++g) add(group(g, 2, 600));
  EXPECT_EQ(assign().request, RequestId(0));
  finish(0, 500);
  const Assignment probe = assign();  // of the other group; the idle prompt must go for it
  EXPECT_EQ(probe.request, RequestId(10));
  ASSERT_EQ(probe.evictions.size(), 1U);
  EXPECT_EQ(probe.evictions[0].request, RequestId());
  EXPECT_EQ(probe.evictions[0].group, GroupId(0));
  EXPECT_EQ(probe.evictions[0].to.tier, KvTier::kHost);
  finish(10, 400);
  const Assignment second = assign();
  EXPECT_EQ(second.request, RequestId(1));
  EXPECT_EQ(second.placement.source, KvSource::kMove);
  EXPECT_EQ(second.placement.from.tier, KvTier::kHost);
  EXPECT_EQ(second.placement.recomputed_tokens, 0);
  finish(1, 500);
  assign();
  finish(11, 400);
  EXPECT_EQ(scheduler_->ledger().blocks_used(KvTier::kHost), 0);
}

TEST_F(SchedulerTest, AFailedInstancesChunksReturnAsTheyWere) {
  make(Policy::kFifo);
  add_instance(0, 1000, 2);
  add_instance(1, 1000, 2);
  add(group(0, 4));
  serve_all();
  chunk_done(0, 100);
  EXPECT_EQ(assign().placement.instance, InstanceId(0));
  const auto returned = scheduler_->instance_failed(InstanceId(0));
  scheduler_->check_invariants();
  EXPECT_EQ(returned, (std::vector{RequestId(0), RequestId(2)}));
  EXPECT_EQ(idle(), Idle::kNoRoom);
  scheduler_->instance_failed(InstanceId(1));
  EXPECT_EQ(idle(), Idle::kNoInstance);
  add_instance(5, 20);
  const Assignment first = assign();
  EXPECT_EQ(first.request, RequestId(0));
  EXPECT_EQ(first.generated, 100);
  EXPECT_EQ(first.placement.source, KvSource::kRecompute);
}

// A sample does not wait for a prompt that cannot come, and what it took in the host is free.
TEST_F(SchedulerTest, AFailedInstanceTakesWhatWasUnderWayFromThere) {
  for (const bool arrived : {false, true}) {
    make({.policy = Policy::kSeer, .chunk_tokens = 700, .move_threshold = 10}, {.host_blocks = 100});
    add_instance(0, 11, 1);
    for (int g = 0; g < 2; ++g) add(group(g, 2, 600));
    EXPECT_EQ(assign().request, RequestId(0));
    finish(0, 500);
    EXPECT_EQ(assign().evictions.front().to.tier, KvTier::kHost);
    EXPECT_TRUE(scheduler_->prompt_is_stored(GroupId(0)));
    if (arrived) finish(10, 400);
    scheduler_->instance_failed(InstanceId(0));
    scheduler_->check_invariants();
    EXPECT_EQ(scheduler_->prompt_is_stored(GroupId(0)), arrived);
    EXPECT_EQ(scheduler_->ledger().blocks_used(KvTier::kHost), arrived ? 1 : 0);
    add_instance(1, 11, 1);
    if (!arrived) {
      EXPECT_EQ(assign().request, RequestId(10));
      finish(10, 400);
    }
    const Assignment next = assign();
    EXPECT_EQ(next.request, RequestId(1));
    EXPECT_EQ(next.placement.source == KvSource::kMove, arrived);
    EXPECT_EQ(next.placement.cached_tokens, arrived ? 64 : 0);
  }
}

TEST_F(SchedulerTest, ARequestThatOutgrewWhatIsLeftNeverFits) {
  make({.policy = Policy::kFifo, .chunk_tokens = 1000});
  add_instance(0, 100);
  add_instance(1, 2);
  add(group(0, 1));
  scheduler_->instance_failed(InstanceId(0));
  EXPECT_EQ(idle(), Idle::kNeverFits);
}

TEST_F(SchedulerTest, ANewPolicyVersionVoidsKvAndLearnsLengths) {
  make(Policy::kSeerPlus);
  add_instance(0);
  add(group(0, 3));
  add(group(1, 3));
  add(group(2, 2));
  serve_all();
  for (const int request : {0, 1, 2}) finish(request, 100 + request);
  for (const int request : {10, 11, 12}) finish(request, 400 + request);
  chunk_done(20, 50);
  chunk_done(21, 60);
  EXPECT_EQ(scheduler_->prior().weight, 0.0);
  scheduler_->new_policy_version();
  scheduler_->check_invariants();
  EXPECT_EQ(scheduler_->prior().weight, 2.0);
  EXPECT_TRUE(scheduler_->requests()[GroupSlot(2)].forecast.known());
  const Assignment next = assign();
  EXPECT_EQ(next.placement.source, KvSource::kRecompute);
  EXPECT_EQ(next.placement.cached_tokens, 0);
  EXPECT_EQ(next.generated, 50);
}

TEST_F(SchedulerTest, WhatIsLearnedDoesNotDependOnWhoEndsFirst) {
  std::vector<LengthPrior> learned;
  for (const bool backwards : {false, true}) {
    make(Policy::kSeerPlus);
    add_instance(0);
    for (int g = 0; g < 8; ++g) add(group(g, 3));
    GroupSpec unlike = group(8, 3);
    unlike.is_learned = false;
    if (!backwards) add(unlike);
    serve_all();
    for (int i = 0; i < 8; ++i) {
      const int g = backwards ? 7 - i : i;
      for (const int sample : {0, 1, 2}) finish(10 * g + sample, 100 + 37 * g + 11 * sample);
    }
    if (!backwards) {
      for (const int sample : {0, 1, 2}) finish(80 + sample, 3);
    }
    scheduler_->new_policy_version();
    learned.push_back(scheduler_->prior());
  }
  EXPECT_EQ(learned[0].weight, 8.0);
  EXPECT_EQ(learned[0], learned[1]);
}

TEST_F(SchedulerTest, RefusesWhatCanNeverRunAndSaysWhy) {
  make(Policy::kOracleLfs);
  add_instance(0, 10);
  const auto message = [this](const GroupSpec& spec) {
    const auto added = scheduler_->add_group(spec);
    EXPECT_FALSE(added.has_value());
    scheduler_->check_invariants();
    return added ? std::string() : added.error().message();
  };
  EXPECT_NE(message(group(0, 1, 100)).find("true length"), std::string::npos);
  EXPECT_NE(message(group(0, 1, 1000, 65, {5})).find("the largest instance has 10"), std::string::npos);
  EXPECT_NE(message(group(0, 1, 100, 0, {5})).find("0 prompt tokens"), std::string::npos);
  EXPECT_NE(message(group(0, 1, 0, 5, {5})).find("max_new_tokens is 0"), std::string::npos);
  EXPECT_NE(message(group(0, 1, 10, 5, {11})).find("known length is 11"), std::string::npos);
  EXPECT_NE(message({.id = GroupId(0), .prompt_tokens = 3, .samples = {}}).find("0 samples"),
            std::string::npos);
  EXPECT_NE(message(group(-1, 1, 10, 5, {5})).find("must not be negative"), std::string::npos);
  GroupSpec twice = group(0, 2, 10, 5, {5, 5});
  twice.samples[1].id = twice.samples[0].id;
  EXPECT_NE(message(twice).find("request 0 occurs twice"), std::string::npos);
  add(group(0, 1, 100, 5, {5}));
  EXPECT_NE(message(group(0, 1, 100, 5, {5})).find("group 0 is already here"), std::string::npos);
  EXPECT_FALSE(scheduler_->add_instance({InstanceId(0), 5, 5}).has_value());
  EXPECT_FALSE(scheduler_->add_instance({InstanceId(1), 0, 5}).has_value());
  EXPECT_FALSE(scheduler_->add_instance({InstanceId(1), 5, 0}).has_value());
  EXPECT_FALSE(scheduler_->add_instance({InstanceId(-1), 5, 5}).has_value());
  EXPECT_EQ(scheduler_->groups_to_issue(3), 3);
  EXPECT_FALSE(Scheduler::create({}, {.host_blocks = -1}).has_value());
  EXPECT_FALSE(Scheduler::create({.max_spread = -1}, {}).has_value());
  EXPECT_FALSE(Scheduler::create({.starvation_period = 1}, {}).has_value());
}

TEST_F(SchedulerTest, ChunkLengthFollowsTheLimit) {
  EXPECT_EQ(chunk_length(300, 65536), 300);
  EXPECT_EQ(chunk_length(0, 65536), 2048);
  EXPECT_EQ(chunk_length(0, 16384), 1024);
  EXPECT_EQ(chunk_length(0, 5000), 320);
  EXPECT_EQ(chunk_length(0, 512), 64);
  EXPECT_EQ(chunk_length(0, 1), 64);
}

using SchedulerDeathTest = SchedulerTest;

TEST_F(SchedulerDeathTest, AStalePlanAborts) {
  make(Policy::kFifo);
  add_instance(0);
  add(group(0, 2));
  const auto stale = scheduler_->plan();
  scheduler_->commit(*stale);
  EXPECT_DEATH(scheduler_->commit(*stale), "version");
}

}  // namespace
}  // namespace rondo::rollout
