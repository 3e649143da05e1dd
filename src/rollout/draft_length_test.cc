// The split of the draft budget, its choice from costs, and what is learned.
#include "rollout/draft_length.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace rondo::rollout {
namespace {

std::vector<double> powers(double p, int count = 8) {
  std::vector<double> result;
  for (int k = 1; k <= count; ++k) result.push_back(std::pow(p, k));
  return result;
}

// One second for a batch of up to `knee` verified tokens, then in proportion: memory-bound, then
// compute-bound.
StepCost roofline(double knee) {
  StepCost::Axes axes{{1, 2, 4, 8, 16, 32, 64, 128, 256}, {0, 1, 2, 3, 4, 5, 6, 7, 8}, {1000}};
  std::vector<double> seconds;
  for (const double batch : axes.batches) {
    for (const double gamma : axes.gammas) seconds.push_back(std::max(1.0, batch * (gamma + 1) / knee));
  }
  return *StepCost::create(axes, seconds);
}

DraftLoad load_of(int probes, int others) {
  DraftLoad load{.running = {}, .mean_context = 1000};
  for (int i = 0; i < probes; ++i) load.add({.is_probe = true, .finished_siblings = 0});
  for (int i = 0; i < others; ++i) load.add({});
  return load;
}

TEST(DraftLengthTest, SplitsByMarginalGain) {
  const auto p = powers(0.6);
  // One each first; then probes while 2 * 0.6^(h+1) >= 0.6^(l+1), which is up to one position ahead.
  EXPECT_TRUE(split_budget(10, 10, p, p, 2.0, 40) == (DraftLengths{3, 1}));
  EXPECT_TRUE(split_budget(10, 10, p, p, 2.0, 50) == (DraftLengths{3, 2}));
  EXPECT_TRUE(split_budget(10, 10, p, p, 1.0, 60) == (DraftLengths{3, 3}));
  // What no longer fits the others goes to the probes: (4, 2) leaves 30.
  EXPECT_TRUE(split_budget(10, 40, p, p, 2.0, 150) == (DraftLengths{7, 2}));
  EXPECT_TRUE(split_budget(10, 40, p, p, 2.0, 9) == (DraftLengths{0, 0}));
  EXPECT_TRUE(split_budget(20, 100, p, p, 2.0, 120) == (DraftLengths{1, 1}));
  EXPECT_TRUE(split_budget(0, 5, p, p, 2.0, 16) == (DraftLengths{3, 3}));
  EXPECT_TRUE(split_budget(5, 0, p, p, 2.0, 1000) == (DraftLengths{8, 8}));
}

TEST(DraftLengthTest, ProbesNeverGetLessAndTheBudgetHolds) {
  std::mt19937 random(5);
  const auto draw = [&random](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low));
  };
  const auto descending = [&] {
    std::vector<double> p = {1.0 / draw(1, 5)};
    while (p.size() < 8) p.push_back(p.back() * draw(1, 100) / 100.0);
    return p;
  };
  int ahead = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const int probes = draw(1, 50);
    const int others = draw(1, 200);
    const int budget = draw(0, 9 * (probes + others));
    const double weight = draw(10, 50) / 10.0;
    const DraftLengths lengths = split_budget(probes, others, descending(), descending(), weight, budget);
    EXPECT_GE(lengths.probe, lengths.other);
    EXPECT_LE(lengths.probe, 8);
    EXPECT_LE(probes * lengths.probe + others * lengths.other, budget);
    ahead += lengths.probe > lengths.other ? 1 : 0;
  }
  EXPECT_GT(ahead, 1000);
}

TEST(DraftLengthTest, LongDraftsForFewRequestsNoneForMany) {
  DraftLengthPlanner planner({.hysteresis = 0.0}, roofline(64));
  for (int i = 0; i < 3000; ++i) planner.observe({}, 8, i % 2 == 0 ? 8 : 2);
  const DraftLengths few = planner.plan(load_of(1, 1));
  EXPECT_EQ(few.probe, 8);
  EXPECT_EQ(few.paths, 2);
  const DraftLengths some = planner.plan(load_of(4, 12));
  EXPECT_GE(some.probe, some.other);
  EXPECT_GE(some.other, 1);
  EXPECT_EQ(some.paths, 1);
  EXPECT_TRUE(planner.plan(load_of(50, 150)) == DraftLengths{});
  EXPECT_TRUE(planner.plan(load_of(0, 0)) == DraftLengths{});
}

TEST(DraftLengthTest, TheUniformLengthIsTheCheapestPerToken) {
  DraftLengthPlanner planner({.hysteresis = 0.0}, roofline(40));
  for (int i = 0; i < 1000; ++i) planner.observe({}, 8, i % 4);
  for (const int batch : {1, 5, 10, 20, 40}) {
    const DraftLoad load = load_of(0, batch);
    const std::int32_t chosen = planner.uniform_length(load);
    for (int gamma = 0; gamma <= 8; ++gamma) {
      EXPECT_LE(planner.token_cost(load, chosen), planner.token_cost(load, gamma));
    }
  }
}

TEST(DraftLengthTest, WhereItDoesNotPayItStillLearnsNowAndThen) {
  DraftLengthPlanner planner({.explore_period = 5}, roofline(1));
  std::vector<int> drafted;
  for (int step = 0; step < 10; ++step) {
    const DraftLengths lengths = planner.plan(load_of(1, 3));
    planner.commit(load_of(1, 3), lengths);
    drafted.push_back(lengths.other);
  }
  EXPECT_EQ(drafted, (std::vector{0, 0, 0, 0, 1, 0, 0, 0, 0, 1}));
  DraftLengthPlanner off({.max_gamma = 0}, roofline(64));
  for (int step = 0; step < 100; ++step) {
    const DraftLengths lengths = off.plan(load_of(1, 0));
    EXPECT_TRUE(lengths == DraftLengths{});
    off.commit(load_of(1, 0), lengths);
  }
}

TEST(DraftLengthTest, AChoiceIsKeptWhileItIsNearlyAsGood) {
  const DraftLoad few = load_of(0, 4);
  const DraftLoad more = load_of(0, 16);
  const auto chosen_after = [&](double hysteresis) {
    DraftLengthPlanner planner({.hysteresis = hysteresis}, roofline(64));
    for (int i = 0; i < 2000; ++i) planner.observe({}, 8, i % 2 == 0 ? 8 : 3);
    planner.commit(few, planner.plan(few));
    return planner.uniform_length(more);
  };
  EXPECT_GT(chosen_after(0.9), chosen_after(0.0));
}

TEST(DraftLengthTest, AcceptanceIsConditionalAndByClass) {
  AcceptanceTable table({.max_gamma = 4, .initial = 0.5, .memory = 500.0});
  EXPECT_DOUBLE_EQ(table.conditional(0, 1), 0.5);
  // Position 1 is accepted always, 2 half the time; 3 is reached half the time and never accepted.
  for (int i = 0; i < 4000; ++i) table.observe({}, 4, i % 2 == 0 ? 1 : 2);
  EXPECT_NEAR(table.conditional(0, 1), 1.0, 0.06);
  EXPECT_NEAR(table.conditional(0, 2), 0.5, 0.06);
  EXPECT_NEAR(table.conditional(0, 3), 0.0, 0.06);
  EXPECT_NEAR(table.conditional(0, 4), 0.5, 1e-12);  // never seen
  EXPECT_NEAR(table.cumulative(0)[1], table.conditional(0, 1) * table.conditional(0, 2), 1e-12);
  // Another class believes the average until it has seen enough of its own.
  const std::size_t probe = draft_class_index({.is_probe = true, .finished_siblings = 3});
  EXPECT_NEAR(table.conditional(probe, 1), 1.0, 0.06);
  for (int i = 0; i < 1000; ++i) table.observe({.is_probe = true, .finished_siblings = 2}, 1, 0);
  EXPECT_LT(table.conditional(probe, 1), 0.15);
  EXPECT_GT(table.conditional(0, 1), 0.85);
}

TEST(DraftLengthTest, ClassesFollowFinishedSiblings) {
  std::vector<std::size_t> indices;
  for (const int n : {0, 1, 2, 4, 5, 15}) indices.push_back(draft_class_index({false, n}));
  EXPECT_EQ(indices, (std::vector<std::size_t>{0, 1, 2, 2, 3, 3}));
  EXPECT_EQ(draft_class_index({true, 0}), 4U);
}

}  // namespace
}  // namespace rondo::rollout
