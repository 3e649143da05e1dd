#include "rl/move_threshold.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rl/session.h"
#include "rl/tiny_run.h"

namespace rondo::rl {
namespace {

TEST(MoveThresholdTest, IsTheMostThatComputesSoonerThanItMoves) {
  EXPECT_EQ(move_threshold({.compute_s = 1e-3, .move_s = 5.5e-3}), 5);
  EXPECT_EQ(move_threshold({.compute_s = 1e-3, .move_s = 0.0}), 0);
  EXPECT_EQ(move_threshold({.compute_s = 1e-3, .move_s = 63.5e-3}), 63);
}

TEST(MoveThresholdTest, NothingIsMovedWhereMovingNeverPays) {
  EXPECT_EQ(move_threshold({.compute_s = 1e-3, .move_s = 64e-3}), kNeverMove);
  EXPECT_EQ(move_threshold({.compute_s = 0.0, .move_s = 0.0}), kNeverMove);
}

TEST(MoveThresholdTest, MeasuringLeavesTheEngineIdle) {
  const TinyRun tiny;
  // Pools of several blocks, of one that the prompt must be cut for, and a second round on the same engine.
  for (const char* memory : {"engine.kv_memory=256KiB", "engine.kv_memory=40KiB"}) {
    const Config config = tiny.config("run", {memory});
    const auto session = Session::open(config).value();
    const auto engine =
        engine::Engine::create(config.engine, *session->model, nullptr, session->context).value();
    for (int round = 0; round < 2; ++round) {
      const auto costs = measure_kv_costs(*engine, session->model->spec());
      ASSERT_TRUE(costs) << costs.error().message();
      EXPECT_TRUE(std::isfinite(costs->compute_s) && std::isfinite(costs->move_s));
      EXPECT_GT(engine->stats().restored_tokens, 0);
      EXPECT_TRUE(engine->idle());
      EXPECT_FALSE(engine->cancel(RequestId(0)).has_value());
    }
  }
}

}  // namespace
}  // namespace rondo::rl
