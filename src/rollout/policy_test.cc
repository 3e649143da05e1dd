// The order of every policy on cases worked out by hand.
#include "rollout/policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "rollout/scheduler_fixture.h"

namespace rondo::rollout {
namespace {

using PolicyTest = SchedulerFixture;

TEST_F(PolicyTest, SeerServesProbesFirstThenUnknownGroupsThenLongestFirst) {
  make(Policy::kSeer);
  add_instance(0);
  for (int g = 0; g < 3; ++g) add(group(g, 3));
  EXPECT_EQ(serve_all(), (Order{0, 10, 20, 1, 2, 11, 12, 21, 22}));
  // Probes 0 and 10 return, the younger one first; 20 shows that group 2 is short; group 0 stays unknown.
  chunk_done(0, 100);
  chunk_done(10, 50);
  finish(20, 30);
  for (const int request : {1, 2, 11, 12, 21, 22}) chunk_done(request, 100 - request);
  EXPECT_EQ(serve_all(), (Order{10, 0, 12, 11, 2, 1, 22, 21}));
  // Now group 0 is known to reach 150, group 1 to reach 300.
  finish(10, 300);
  finish(0, 150);
  for (const int request : {1, 2, 11, 12, 21, 22}) chunk_done(request, 10);
  EXPECT_EQ(serve_all(), (Order{12, 11, 2, 1, 22, 21}));
}

GroupSpec with_past(GroupSpec spec, std::vector<std::int32_t> lengths) {
  spec.past_lengths = std::move(lengths);
  return spec;
}

TEST_F(PolicyTest, SeerExpectsWhatEarlierEpochsHadUntilASiblingEnds) {
  make(Policy::kSeer);
  add_instance(0);
  add(with_past(group(0, 3), {50, 80}));
  add(with_past(group(1, 3), {300}));
  add(with_past(group(2, 3), {5000}));  // the limit is 1000
  add(group(3, 2));
  EXPECT_EQ(serve_all(), (Order{0, 10, 20, 30, 21, 22, 31, 11, 12, 1, 2}));
  finish(10, 20);
  for (const int request : {1, 2, 11, 12}) chunk_done(request, 10);
  EXPECT_EQ(serve_all(), (Order{1, 2, 11, 12}));
}

TEST_F(PolicyTest, SeerPlusCountsPastResponsesLikeFinishedSiblings) {
  const LengthPrior prior{.log_median = 5.0, .sigma = 1.0, .rho = 0.5, .weight = 10.0};
  // Of 6 responses, counted as 8, 16 %: one standard deviation.
  make({.policy = Policy::kSeerPlus, .length_misses = 1.27}, {}, prior);
  add_instance(0);
  add(with_past(group(0, 2), {40, 40, 40}));
  add(group(1, 2));
  add(with_past(group(2, 2), {600, 600, 600}));
  EXPECT_EQ(serve_all(), (Order{20, 21, 10, 11, 0, 1}));
  const auto refused = scheduler_->add_group(with_past(group(3, 2), {0}));
  EXPECT_FALSE(refused.has_value());
}

TEST_F(PolicyTest, SeerTakesTheFirstFinishedSiblingThenTheLongest) {
  make(Policy::kSeer);
  add_instance(0);
  add(group(0, 4));
  add(group(1, 2));
  serve_all();
  finish(10, 200);
  finish(0, 100);
  chunk_done(1, 10);
  chunk_done(2, 20);
  chunk_done(11, 90);
  EXPECT_EQ(serve_all(), (Order{11, 1, 2}));
  finish(3, 250);  // group 0 is the longer one now
  chunk_done(1, 10);
  chunk_done(2, 10);
  chunk_done(11, 10);
  EXPECT_EQ(serve_all(), (Order{1, 2, 11}));
}

TEST_F(PolicyTest, FifoServesByArrivalAndLeastAttainedByGeneratedTokens) {
  for (const Policy policy : {Policy::kFifo, Policy::kLeastAttained}) {
    make(policy);
    add_instance(0);
    add(group(0, 2));
    add(group(1, 2));
    EXPECT_EQ(serve_all(), (Order{0, 1, 10, 11}));
    chunk_done(0, 90);
    chunk_done(1, 30);
    chunk_done(10, 60);
    chunk_done(11, 30);
    EXPECT_EQ(serve_all(), policy == Policy::kFifo ? (Order{0, 1, 10, 11}) : (Order{1, 11, 10, 0}));
  }
}

TEST_F(PolicyTest, OracleServesLongestRemainingFirst) {
  make(Policy::kOracleLfs);
  add_instance(0);
  add(group(0, 3, 1000, 65, {150, 200, 180}));
  EXPECT_EQ(serve_all(), (Order{1, 2, 0}));
  chunk_done(1, 100);
  chunk_done(2, 10);
  chunk_done(0, 20);
  EXPECT_EQ(serve_all(), (Order{2, 0, 1}));
}

TEST_F(PolicyTest, SeerPlusWithoutAPriorServesProbesThenTheLeastGenerated) {
  make(Policy::kSeerPlus);
  add_instance(0);
  add(group(0, 2));
  add(group(1, 2));
  EXPECT_EQ(serve_all(), (Order{0, 10, 1, 11}));
  chunk_done(0, 90);
  chunk_done(10, 80);
  chunk_done(1, 50);
  chunk_done(11, 20);
  EXPECT_EQ(serve_all(), (Order{10, 0, 11, 1}));
}

TEST_F(PolicyTest, SeerPlusServesMostRemainingByTheGroupsForecast) {
  // exp(5) = 148 tokens; the quantile of an unknown group is beyond the limit.
  make({.policy = Policy::kSeerPlus, .chunk_tokens = 100, .starvation_period = 1000}, {},
       {.log_median = 5.0, .sigma = 1.0, .rho = 0.8, .weight = 100});
  add_instance(0);
  add(group(0, 3));
  add(group(1, 3));
  EXPECT_EQ(serve_all(), (Order{0, 1, 2, 10, 11, 12}));
  // Group 0 turns out short, so group 1 has more left although it has generated more.
  finish(0, 10);
  finish(1, 12);
  chunk_done(2, 20);
  chunk_done(11, 90);
  chunk_done(12, 80);
  EXPECT_EQ(serve_all(), (Order{12, 11, 2}));
}

TEST_F(PolicyTest, SeerPlusServesWhatHasOutgrownItsForecast) {
  // A hundredth goes beyond 376 tokens, but of those that have reached 400, a hundredth goes beyond 700.
  make({.policy = Policy::kSeerPlus, .chunk_tokens = 500, .length_misses = 0.04}, {},
       {.log_median = 5.0, .sigma = 0.4, .rho = 0.1, .weight = 100});
  add_instance(0);
  add(group(0, 2));
  add(group(1, 2));
  serve_all();
  chunk_done(0, 400);
  chunk_done(10, 160);
  EXPECT_EQ(serve_all(), (Order{0, 10}));
}

TEST_F(PolicyTest, SeerPlusLearnsFromEveryChunkOfASibling) {
  make({.policy = Policy::kSeerPlus, .length_misses = 1.27}, {},
       {.log_median = 4.0, .sigma = 0.5, .rho = 0.5, .weight = 10.0});
  add_instance(0);
  add(group(0, 4));
  serve_all();
  const LengthForecast& forecast = scheduler_->requests()[GroupSlot(0)].forecast;
  finish(0, 20);
  const double after_the_shortest = forecast.log_mean;
  // Still below the median of 55, and yet these have not ended at 20.
  for (const int request : {1, 2, 3}) {
    const double before = forecast.log_mean;
    chunk_done(request, 40);
    EXPECT_GT(forecast.log_mean, before);
  }
  EXPECT_GT(forecast.log_mean, after_the_shortest + std::log(1.25));
}

TEST_F(PolicyTest, SeerPlusAllowsForMoreTheMoreResponsesRunAtATime) {
  make({.policy = Policy::kSeerPlus, .length_misses = 1.0}, {},
       {.log_median = 4.0, .sigma = 0.5, .rho = 0.5, .weight = 10.0});
  add_instance(0, 1000, 3);
  const auto allows_for = [&](int id, double share) {
    const Group& group = scheduler_->requests()[*scheduler_->requests().find(GroupId(id))];
    return group.upper_tokens == upper_length(group.forecast, share, 0);
  };
  // Before it is known how many run at a time, all count; equal groups do not differ by when they came.
  add(group(0, 4));
  EXPECT_TRUE(allows_for(0, 1.0 / 4));
  for (int g = 1; g < 4; ++g) add(group(g, 4));
  for (int g = 0; g < 4; ++g) EXPECT_TRUE(allows_for(g, 1.0 / 16));
  // With as many assignments as there are responses it is known.
  std::vector<std::int64_t> running;
  for (int i = 0; i < 16; ++i) {
    EXPECT_TRUE(allows_for(3, 1.0 / 16)) << i;
    if (running.size() == 3) {
      chunk_done(running.front(), 1);
      running.erase(running.begin());
    }
    running.push_back(assign().request.value());
  }
  EXPECT_TRUE(allows_for(3, 1.0 / 4));  // 3 run, counted as 4
  add(group(4, 4));
  EXPECT_TRUE(allows_for(4, 1.0 / 4));
  for (const std::int64_t request : running) chunk_done(request, 1);
  scheduler_->new_policy_version();
  scheduler_->check_invariants();
  EXPECT_TRUE(allows_for(0, 1.0 / 32));  // 20 wait
}

TEST_F(PolicyTest, TheLongestWaitingIsServedOnceAPeriod) {
  make({.policy = Policy::kLeastAttained, .chunk_tokens = 10, .starvation_period = 4});
  add_instance(0, 1000, 1);
  add(group(0, 1));
  add(group(1, 1));
  std::vector<std::int64_t> order;
  for (int i = 0; i < 12; ++i) {
    order.push_back(assign().request.value());
    chunk_done(order.back(), order.back() == 0 ? 10 : 1);
  }
  // Request 0 has more tokens from its first chunk on, and yet every fourth decision is its own.
  EXPECT_EQ(order, (Order{0, 10, 10, 0, 10, 10, 10, 0, 10, 10, 10, 0}));
  EXPECT_EQ(scheduler_->stats().overdue, 3);
}

TEST_F(PolicyTest, GroupRoundRobinDealsWholeGroupsInTurnAndReservesNothing) {
  make(Policy::kGroupRoundRobin);
  for (const int id : {0, 1, 4}) add_instance(id, 20, 1);
  for (int g = 0; g < 4; ++g) add(group(g, 2));
  for (const int instance : {0, 0, 1, 1, 4, 4, 0, 0}) {
    const Assignment next = assign();
    EXPECT_EQ(next.placement.instance, InstanceId(instance));
    EXPECT_EQ(next.max_tokens, 1000);
    EXPECT_EQ(next.reserved_blocks, 0);
  }
  // What was on a failed instance goes to the next in turn, as a group.
  scheduler_->instance_failed(InstanceId(4));
  EXPECT_EQ(assign().placement.instance, InstanceId(1));
  EXPECT_EQ(assign().placement.instance, InstanceId(1));
}

TEST_F(PolicyTest, StreamOracleGivesTheLongestGroupTheLeastLoadedInstanceThatHoldsIt) {
  make(Policy::kStreamOracle);
  add_instance(0, 20);
  add_instance(1, 20);
  add(group(0, 2, 1000, 1, {64, 64}));    // 2 blocks together
  add(group(1, 2, 1000, 1, {640, 576}));  // 19
  add(group(2, 2, 1000, 1, {704, 640}));  // 21: beyond any instance
  for (const int request : {20, 21}) {
    const Assignment next = assign();
    EXPECT_EQ(next.request, RequestId(request));
    EXPECT_EQ(next.placement.instance, InstanceId(0));
  }
  EXPECT_EQ(assign().request, RequestId(10));
  EXPECT_EQ(assign().placement.instance, InstanceId(1));
  EXPECT_EQ(idle(), Idle::kNoRoom);  // one block is left on instance 1
  finish(11, 576);
  EXPECT_EQ(serve_all(), (Order{0, 1}));
  EXPECT_EQ(scheduler_->num_in_flight(InstanceId(1)), 3);
}

TEST_F(PolicyTest, PartialStopsAtItsGoalAndAbandonsTheRest) {
  make(Policy::kPartial);
  EXPECT_FALSE(scheduler_->rules().strictly_synchronous);
  EXPECT_EQ(scheduler_->groups_to_issue(3), 6);
  add_instance(0);
  scheduler_->set_goal(1);
  for (int g = 0; g < 3; ++g) add(group(g, 1));
  EXPECT_EQ(assign().request, RequestId(0));
  EXPECT_EQ(assign().request, RequestId(10));
  finish(10, 5);
  EXPECT_EQ(idle(), Idle::kGoalReached);
  EXPECT_EQ(scheduler_->abandon(), (std::vector{RequestId(0), RequestId(20)}));
  scheduler_->check_invariants();
  EXPECT_EQ(scheduler_->num_in_flight() + scheduler_->num_waiting(), 0);
  EXPECT_EQ(scheduler_->ledger().free_blocks(InstanceId(0)), 1000);
}

}  // namespace
}  // namespace rondo::rollout
