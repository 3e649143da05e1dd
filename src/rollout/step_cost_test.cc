#include "rollout/step_cost.h"

#include <gtest/gtest.h>

#include <string>

namespace rondo::rollout {
namespace {

StepCost grid() {
  // By batch (1, 5), gamma (0, 4), context (100, 300).
  return *StepCost::create({{1, 5}, {0, 4}, {100, 300}}, {1, 2, 3, 4, 5, 6, 7, 9});
}

TEST(StepCostTest, IsMeasuredAtThePointsAndLinearBetween) {
  const StepCost cost = grid();
  EXPECT_DOUBLE_EQ(cost.seconds(1, 0, 100), 1);
  EXPECT_DOUBLE_EQ(cost.seconds(5, 4, 300), 9);
  EXPECT_DOUBLE_EQ(cost.seconds(1, 0, 200), 1.5);
  EXPECT_DOUBLE_EQ(cost.seconds(3, 0, 100), 3);
  EXPECT_DOUBLE_EQ(cost.seconds(1, 1, 100), 1.5);
  EXPECT_DOUBLE_EQ(cost.seconds(3, 2, 200), (1 + 2 + 3 + 4 + 5 + 6 + 7 + 9) / 8.0);
}

TEST(StepCostTest, GoesOnAlongTheLastCellAndNeverReachesZero) {
  const StepCost cost = grid();
  EXPECT_DOUBLE_EQ(cost.seconds(9, 0, 100), 9);
  EXPECT_DOUBLE_EQ(cost.seconds(1, 8, 100), 5);
  EXPECT_DOUBLE_EQ(cost.seconds(0, 0, 0), 0.5);
  const StepCost falling = *StepCost::create({{1, 2}, {0}, {0}}, {3, 2});
  EXPECT_DOUBLE_EQ(falling.seconds(100, 0, 0), 1);
}

TEST(StepCostTest, SurvivesJsonBitForBit) {
  const StepCost cost = *StepCost::create({{1, 7}, {0}, {0.1}}, {1.0 / 3.0, 0.1 + 0.2});
  const auto back = parse_step_cost(step_cost_json(cost));
  ASSERT_TRUE(back.has_value());
  EXPECT_TRUE(*back == cost);
}

TEST(StepCostTest, RefusesWhatIsNoGrid) {
  EXPECT_FALSE(StepCost::create({{}, {0}, {1}}, {}).has_value());
  EXPECT_FALSE(StepCost::create({{2, 1}, {0}, {1}}, {1, 1}).has_value());
  EXPECT_FALSE(StepCost::create({{1, 1}, {0}, {1}}, {1, 1}).has_value());
  EXPECT_FALSE(StepCost::create({{1}, {1}, {1}}, {1}).has_value());
  EXPECT_FALSE(StepCost::create({{1}, {0}, {1}}, {1, 1}).has_value());
  EXPECT_FALSE(StepCost::create({{1}, {0}, {1}}, {0}).has_value());
  for (const double seconds : {1e308, 1e6, 1e-12, -1.0})
    EXPECT_FALSE(StepCost::create({{1}, {0}, {1}}, {seconds}).has_value()) << seconds;
  for (const double context : {1e308, 1e10, -1.0})
    EXPECT_FALSE(StepCost::create({{1}, {0}, {context}}, {1}).has_value()) << context;
  for (const std::string text : {"", "[]", R"({"batches": 3})", R"({"batches": ["x"]})"}) {
    const auto parsed = parse_step_cost(text);
    ASSERT_FALSE(parsed.has_value());
    EXPECT_EQ(parsed.error().code(), Code::kDataLoss);
  }
}

}  // namespace
}  // namespace rondo::rollout
