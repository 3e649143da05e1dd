// PhaseTimer and EtaEstimator under a clock that the test turns.
#include <gtest/gtest.h>

#include "metrics/eta_estimator.h"
#include "metrics/phase_timer.h"

namespace rondo::metrics {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

class ManualClock final : public Clock {
 public:
  std::int64_t now_ns() const override { return now_; }
  void advance(std::int64_t ns) { now_ += ns; }

 private:
  std::int64_t now_ = 7;
};

TEST(PhaseTimerTest, AddsUpRepeatedAndNestedPhases) {
  ManualClock clock;
  PhaseTimer timer(clock);
  for (int i = 0; i < 2; ++i) {
    const auto step = timer.measure("step");
    clock.advance(kSecond);
    const auto gen = timer.measure("gen");
    clock.advance(2 * kSecond);
  }
  EXPECT_EQ(timer.seconds("step"), 6.0);
  EXPECT_EQ(timer.seconds("gen"), 4.0);
  EXPECT_EQ(timer.seconds("reward"), 0.0);
}

TEST(PhaseTimerTest, ReportsMeasuredValuesAndForgetsOnReset) {
  ManualClock clock;
  PhaseTimer timer(clock);
  {
    const auto gen = timer.measure("gen");
    clock.advance(kSecond / 2);
  }
  StepRecord record;
  timer.add_to(record);
  ASSERT_EQ(record.entries().size(), 1u);
  EXPECT_EQ(record.entries()[0].nature, Nature::kMeasured);
  EXPECT_EQ(record.find("timing_s/gen"), 0.5);
  timer.reset();
  StepRecord empty;
  timer.add_to(empty);
  EXPECT_TRUE(empty.entries().empty());
}

TEST(PhaseTimerTest, ResetInsideAScopeIsABug) {
  ManualClock clock;
  PhaseTimer timer(clock);
  const auto scope = timer.measure("gen");
  EXPECT_DEATH(timer.reset(), "open_scopes_ == 0");
}

TEST(EtaEstimatorTest, KnowsNothingBeforeTheFirstStep) {
  const EtaEstimator eta(0);
  EXPECT_EQ(eta.step_seconds(), std::nullopt);
  EXPECT_EQ(eta.seconds_left(10, kSecond), std::nullopt);
}

TEST(EtaEstimatorTest, OneSlowStepDoesNotMoveTheMedian) {
  EtaEstimator eta(0);
  std::int64_t now = 0;
  for (const std::int64_t seconds : {2, 100, 2, 4}) eta.step_done(now += seconds * kSecond);
  EXPECT_EQ(eta.step_seconds(), 3.0);
  EXPECT_EQ(eta.seconds_left(10, now), 30.0);
}

TEST(EtaEstimatorTest, CountsDownWithinAStepButNotBelowTheNext) {
  EtaEstimator eta(0);
  eta.step_done(4 * kSecond);
  EXPECT_EQ(eta.seconds_left(2, 5 * kSecond), 7.0);
  EXPECT_EQ(eta.seconds_left(2, 60 * kSecond), 4.0);
  EXPECT_EQ(eta.seconds_left(0, 5 * kSecond), 0.0);
}

TEST(EtaEstimatorTest, ForgetsStepsBeyondTheWindow) {
  EtaEstimator eta(0, 2);
  std::int64_t now = 0;
  for (const std::int64_t seconds : {50, 50, 1, 1}) eta.step_done(now += seconds * kSecond);
  EXPECT_EQ(eta.step_seconds(), 1.0);
}

}  // namespace
}  // namespace rondo::metrics
