#include "sim/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "rollout/input_log.h"
#include "sim/lengths.h"

namespace rondo::sim {
namespace {

using rollout::Policy;
using ::testing::HasSubstr;

// Steps of exactly a second per running batch, nothing else costs anything.
EngineModel::Config plain_engine(std::int64_t kv_tokens) {
  return {.devices = 8,
          .step_overhead_ms = 1000.0,
          .sequence_overhead_us = 0.0,
          .collective_latency_us = 0.0,
          .spec_step_overhead_ms = 0.0,
          .spec_sequence_overhead_us = 0.0,
          .kv_tokens = kv_tokens};
}

ClusterSpec cluster(Policy policy, int instances, std::int64_t kv_tokens, int chunk = 256) {
  auto engine = EngineModel::create(plain_engine(kv_tokens), *find_device("h800"), *find_model("qwen3-32b"));
  EXPECT_TRUE(engine) << engine.error().message();
  return {.engine = *std::move(engine),
          .schedule = {.policy = policy, .chunk_tokens = chunk},
          .instances = instances,
          .drafts = {},
          .gain = DraftGain(DraftGain::Config{})};
}

std::vector<rollout::GroupSpec> one_group(std::vector<std::int32_t> lengths, std::int32_t max) {
  rollout::GroupSpec group{.id = GroupId(0), .prompt_tokens = 64, .samples = {}};
  for (const std::int32_t length : lengths) {
    group.samples.push_back(
        {.id = RequestId(std::ssize(group.samples)), .max_new_tokens = max, .true_tokens = length});
  }
  return {group};
}

Outcome run(const ClusterSpec& spec, const std::vector<rollout::GroupSpec>& groups,
            Recording* recording = nullptr) {
  auto outcome = simulate(spec, {.groups = groups, .prior = {}, .seed = 3, .checks = true}, recording);
  EXPECT_TRUE(outcome) << outcome.error().message();
  return outcome ? *std::move(outcome) : Outcome();
}

const LengthConfig kLengths{
    .groups = 24, .group_size = 8, .prompt_tokens = 100, .mean = 600, .max = 4096, .shape = 1.0};

// Both run at once: 100 steps of the short one, 200 more of the long one.
TEST(Simulation, ResponsesAdvanceTogetherStepByStep) {
  const Outcome o = run(cluster(Policy::kGroupRoundRobin, 1, 100000), one_group({100, 300}, 512));
  EXPECT_NEAR(o.total_s, 300.0, 15.0);  // and the weights' reading
  EXPECT_EQ(o.tokens, 400);
  EXPECT_NEAR(o.request_steps, 400.0, 1e-6);
  EXPECT_NEAR(o.mean_running, 400.0 / 300.0, 0.01);
  EXPECT_EQ(o.preemptions, 0);
}

TEST(Simulation, TheTailIsTheTimeOfTheLastTenthToFinish) {
  std::vector<std::int32_t> lengths(20, 100);
  lengths[7] = 300;
  lengths[9] = 250;
  const Outcome o = run(cluster(Policy::kGroupRoundRobin, 1, 100000), one_group(lengths, 512));
  EXPECT_NEAR(o.tail_s / o.total_s, 200.0 / 300.0, 0.01);
}

// Room for 600 tokens: two contexts of 64 + 200 and more do not fit, so the second, preempted, starts again.
TEST(Simulation, WithoutReservationsFullKvPreemptsTheLatest) {
  const Outcome o = run(cluster(Policy::kGroupRoundRobin, 1, 600), one_group({300, 300}, 512));
  EXPECT_EQ(o.preemptions, 1);
  EXPECT_NEAR(static_cast<double>(o.recomputed_tokens), 300 - 8, 9);
  EXPECT_GT(o.total_s, 300.0);
  EXPECT_EQ(o.tokens, 600);
}

TEST(Simulation, ReservingPoliciesNeverPreemptWhateverTheRoom) {
  const auto groups = draw_groups(kLengths, kLengths.groups, 11);
  for (const auto& [policy, name] : enum_names(Policy{})) {
    if (rollout::rules_of(policy).dispatch != rollout::Dispatch::kChunks) continue;
    const Outcome o = run(cluster(policy, 2, 20000), groups);
    EXPECT_EQ(o.preemptions, 0) << name;
    EXPECT_EQ(o.responses, 192) << name;
  }
}

TEST(Simulation, EveryPolicyGeneratesAllTokens) {
  const auto groups = draw_groups(kLengths, kLengths.groups, 4);
  std::int64_t tokens = 0;
  for (const auto& group : groups) {
    for (const auto& sample : group.samples) tokens += sample.true_tokens;
  }
  for (const auto& [policy, name] : enum_names(Policy{})) {
    for (const bool speculates : {false, true}) {
      ClusterSpec spec = cluster(policy, 3, 20000);
      spec.speculates = speculates;
      const Outcome o = run(spec, groups);
      EXPECT_EQ(o.tokens, tokens) << name;
      EXPECT_EQ(o.unfinished_tokens, 0) << name;
      EXPECT_GE(o.idle_share, 0.0) << name;
      EXPECT_EQ(o.accept_length > 1.01, speculates) << name << " " << o.accept_length;
    }
  }
}

TEST(Simulation, PartialStopsAtItsGoalAndCountsWhatWasInFlight) {
  const auto groups = draw_groups(kLengths, 48, 4);
  Recording recording("test", false);
  const RolloutSpec rollout{.groups = groups, .goal = 24, .prior = {}, .checks = true};
  const auto o = simulate(cluster(Policy::kPartial, 3, 40000), rollout, &recording);
  ASSERT_TRUE(o);
  EXPECT_LT(o->responses, 48 * 8);
  EXPECT_EQ(o->accept_length, 1.0);
  // Every response-step gave a token; a response that stopped between two lost less than one.
  const double lost = o->request_steps - static_cast<double>(o->tokens + o->unfinished_tokens);
  EXPECT_GT(lost, -1e-6 * o->request_steps);
  EXPECT_LT(lost, 48 * 8 + static_cast<double>(o->preemptions));
  std::int64_t drawn = 0;
  const timeline::Timeline timeline = recording.timeline.finish(as_ns(o->total_s));
  for (const timeline::Chunk& chunk : timeline.chunks) {
    EXPECT_LE(chunk.begin_ns, chunk.end_ns);
    EXPECT_LE(chunk.end_ns, as_ns(o->total_s));
    drawn += chunk.end_tokens - chunk.begin_tokens;
  }
  EXPECT_EQ(drawn, o->tokens + o->unfinished_tokens);
}

// Seven instances that are busy until the goal is reached: their times, added up, exceed the whole by
// rounding in some of the runs.
TEST(Simulation, BusyInstancesAreIdleForNoTimeRatherThanForLess) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto groups = draw_groups(kLengths, 28, seed);
    const RolloutSpec rollout{.groups = groups, .goal = 3, .prior = {}};
    const auto o = simulate(cluster(Policy::kPartial, 7, 40000), rollout, nullptr);
    ASSERT_TRUE(o);
    EXPECT_GE(o->idle_share, 0.0);
    EXPECT_LT(o->idle_share, 1e-12);
  }
}

TEST(Simulation, OfFewResponsesTheLastIsTheTail) {
  const Outcome two = run(cluster(Policy::kGroupRoundRobin, 1, 100000), one_group({100, 300}, 512));
  EXPECT_NEAR(two.tail_s / two.total_s, 200.0 / 300.0, 0.01);
  const Outcome one = run(cluster(Policy::kGroupRoundRobin, 1, 100000), one_group({100}, 512));
  EXPECT_NEAR(one.tail_s, one.total_s, 2e-9);  // of whole nanoseconds
  const Outcome equal = run(cluster(Policy::kGroupRoundRobin, 1, 100000), one_group({100, 100}, 512));
  EXPECT_EQ(equal.tail_s, 0.0);
}

TEST(Simulation, EveryChunkPaysItsOverheadOnce) {
  ClusterSpec spec = cluster(Policy::kSeer, 1, 100000, 50);
  const auto groups = one_group({180}, 512);  // 4 chunks, one after the other
  const double without = run(spec, groups).total_s;
  spec.chunk_overhead_s = 0.25;
  EXPECT_NEAR(run(spec, groups).total_s, without + 4 * 0.25, 1e-9);
}

// The first response runs 100 tokens, makes room for the last, and goes on when its KV is back: one move,
// over the link that `spec` makes it take, with nothing else to do meanwhile.
void expect_one_move(ClusterSpec spec, double Device::*link, const std::vector<std::int32_t>& lengths) {
  // 100 tokens of 64 layers, 8 heads of 128, K and V, 16 bits: the response's last has no KV yet, the
  // prompt's last is never shared, its others are there.
  constexpr double kBytes = 100 * 64 * 8 * 128 * 2 * 2.0;
  const auto total_with = [&](double bandwidth) {
    Device device = *find_device("h800");
    device.*link = bandwidth;
    const EngineModel::Config config = plain_engine(spec.engine.kv_tokens());
    spec.engine = *EngineModel::create(config, device, *find_model("qwen3-32b"));
    const Outcome o = run(spec, one_group(lengths, 200));
    EXPECT_EQ(o.migrations, 1);
    EXPECT_EQ(o.migrated_bytes, kBytes);
    return o.total_s;
  };
  EXPECT_NEAR(total_with(1e6) - total_with(1e30), kBytes / (8 * 1e6), 1e-9);
}

TEST(Simulation, AMoveTakesItsBytesOverTheLinksOfTheInstancesDevices) {
  // Between instances: at 100 the second response ends, and the last one has taken the first one's place.
  ClusterSpec spec = cluster(Policy::kLeastAttained, 2, 100000, 100);
  spec.schedule.move_threshold = 64;  // the prompt, which is computed on both
  spec.schedule.max_spread = 0;
  spec.max_running = 1;
  expect_one_move(spec, &Device::rdma_bandwidth, {150, 100, 10});
  // To host memory or disk and back: the instance has blocks for one of both at the end.
  spec = cluster(Policy::kLeastAttained, 1, 5 * 64, 100);
  spec.schedule.move_threshold = 64;
  spec.max_running = 1;
  spec.host_kv_bytes = 1e12;
  expect_one_move(spec, &Device::host_bandwidth, {150, 100});
  std::swap(spec.host_kv_bytes, spec.disk_kv_bytes);
  expect_one_move(spec, &Device::disk_bandwidth, {150, 100});
}

// Undivided without a watermark, KV for few: it once let the latest go and took it back for ever.
TEST(Simulation, WithoutAWatermarkPreemptionsEnd) {
  ClusterSpec spec = cluster(Policy::kGroupRoundRobin, 2, 8192);
  spec.watermark = 0.0;
  const Outcome o = run(spec, draw_groups(kLengths, kLengths.groups, 4));
  EXPECT_EQ(o.responses, 192);
  EXPECT_GT(o.preemptions, 0);
}

TEST(Simulation, EqualSeedsGiveEqualEventsAndOthersOthers) {
  ClusterSpec spec = cluster(Policy::kSeer, 3, 20000);
  spec.speculates = true;
  const auto groups = draw_groups(kLengths, kLengths.groups, 4);
  const Outcome first = run(spec, groups);
  EXPECT_EQ(first.event_hash, run(spec, groups).event_hash);
  EXPECT_NE(first.event_hash, run(spec, draw_groups(kLengths, kLengths.groups, 5)).event_hash);
}

// What the instances were told and did agrees with what the recording says.
TEST(Simulation, RecordingHoldsEveryTokenOnce) {
  for (const Policy policy : {Policy::kGroupRoundRobin, Policy::kSeer}) {
    Recording recording("test", false);
    const Outcome o = run(cluster(policy, 2, 9000), draw_groups(kLengths, kLengths.groups, 4), &recording);
    const timeline::Timeline timeline = recording.timeline.finish(as_ns(o.total_s));
    std::int64_t tokens = 0;
    for (const timeline::Chunk& chunk : timeline.chunks) {
      EXPECT_LE(chunk.begin_ns, chunk.end_ns);
      tokens += chunk.end_tokens - chunk.begin_tokens;
    }
    EXPECT_EQ(tokens, o.tokens);
    EXPECT_EQ(std::ssize(timeline.chunks), o.chunks + o.preemptions);
    EXPECT_EQ(std::ssize(timeline.finishes), o.responses);
    EXPECT_TRUE(recording.inputs.empty());
    for (const timeline::Counter& counter : timeline.counters) {
      const double most = counter.name == "KV in use, %" ? 100.0 + 1e-6 : 192.0;
      for (const double mean : counter.means) EXPECT_LE(mean, most) << counter.name;
    }
  }
}

TEST(Simulation, ItsInputsReplayToTheSameDecisions) {
  for (const Policy policy :
       {Policy::kSeer, Policy::kSeerPlus, Policy::kGroupRoundRobin, Policy::kOracleLfs}) {
    ClusterSpec spec = cluster(policy, 3, 9000);
    spec.speculates = true;
    Recording recording("test", true);
    const Outcome o = run(spec, draw_groups(kLengths, kLengths.groups, 4), &recording);
    std::string text;
    for (const rollout::TimedInput& input : recording.inputs) text += rollout::input_line(input);
    const auto inputs = rollout::parse_input_log(text);
    ASSERT_TRUE(inputs);
    const auto again =
        *rollout::Scheduler::create(spec.schedule, {.draft_room_tokens = spec.drafts.max_gamma});
    const auto replayed = rollout::replay(*inputs, {.scheduler = again.get()});
    EXPECT_TRUE(replayed) << replayed.error().message();
    EXPECT_EQ(again->stats().assignments, o.chunks);
    EXPECT_EQ(again->stats().finished_requests, o.responses);
    rollout::DraftLengthPlanner drafts(spec.drafts, *spec.engine.as_profile(spec.drafts.max_gamma));
    const auto drafted =
        rollout::replay(recording.draft_inputs, {.scheduler = again.get(), .drafts = &drafts});
    EXPECT_TRUE(drafted) << drafted.error().message();
    EXPECT_GT(recording.draft_inputs.size(), 10U);
  }
}

TEST(Simulation, RefusesAResponseThatCanNeverFit) {
  const auto groups = one_group({300}, 512);
  const auto outcome = simulate(cluster(Policy::kSeer, 1, 512), {.groups = groups, .prior = {}}, nullptr);
  ASSERT_FALSE(outcome);
  EXPECT_THAT(outcome.error().message(), HasSubstr("the largest instance has 8"));
}

}  // namespace
}  // namespace rondo::sim
