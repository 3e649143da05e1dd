// A rollout over several instances gives the bits of a plain engine, whatever the policy, the chunks, the
// memory, and the instances that fail on the way.
#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <thread>

#include "engine/test_rollout.h"

namespace rondo::engine {
namespace {

class InstanceTest : public RolloutTest {};

TEST_F(InstanceTest, EveryPolicyGivesThePlainResponses) {
  for (const Policy policy : {Policy::kSeer, Policy::kSeerPlus, Policy::kFifo, Policy::kLeastAttained,
                              Policy::kGroupRoundRobin, Policy::kStreamOracle, Policy::kOracleLfs}) {
    for (const int instances : {1, 2, 4}) expect_same({.policy = policy, .instances = instances});
  }
}

TEST_F(InstanceTest, AnyChunkLength) {
  for (const int chunk : {1, 7, 64, 1000}) expect_same({.chunk_tokens = chunk});
}

TEST_F(InstanceTest, SeveralThreadsPerInstance) {
  expect_same({.instances = 2, .threads = 2});
}

TEST_F(InstanceTest, ChunkedPoliciesNeverPreempt) {
  for (const Policy policy : {Policy::kSeer, Policy::kSeerPlus, Policy::kFifo, Policy::kLeastAttained}) {
    TestRollout rollout(scene(), {.policy = policy, .instances = 2, .spare_blocks = 1});
    ASSERT_TRUE(rollout.run());
    EXPECT_EQ(rollout.stats().preemptions, 0);
    EXPECT_EQ(rollout.stats().evicted_parked, 0);
  }
}

// One response at a time: between two samples of a group nothing of it is there but the kept prompt.
TEST_F(InstanceTest, DraftsChangeNothingAndGoWithTheirGroups) {
  std::int64_t fetched = 0;
  for (const Policy policy : {Policy::kSeer, Policy::kLeastAttained, Policy::kPartial}) {
    TestRollout rollout(scene(), {.policy = policy, .instances = 3, .spare_blocks = 2, .draft = true});
    const Result<Responses> found = rollout.run(policy == Policy::kPartial ? 3 : 0);
    ASSERT_TRUE(found) << found.error().message();
    for (const auto& [id, response] : found->by_id) {
      EXPECT_EQ(difference(scene().expected()[id], response), "");
    }
    EXPECT_GT(rollout.stats().drafted_tokens, 0);
    fetched += rollout.fetched_draft_tokens();
    EXPECT_EQ(rollout.draft_server().num_groups(), 0U);
    EXPECT_EQ(rollout.draft_server().memory_bytes(), 0U);
    for (const Drafting* drafting : rollout.draftings()) {
      EXPECT_EQ(drafting->client().num_groups(), 0U);
      EXPECT_EQ(drafting->client().memory_bytes(), 0U);
    }
  }
  EXPECT_GT(fetched, 0) << "instances drafted from each other's responses";
}

// What the instances tell each other for drafts is lost, late, repeated and out of order.
TEST_F(InstanceTest, DraftsOverABadNetworkChangeNothing) {
  std::int64_t lost = 0, delays = 0, fetched = 0;
  for (const Policy policy : {Policy::kSeer, Policy::kSeerPlus, Policy::kLeastAttained}) {
    for (const double loss : {0.2, 0.6}) {
      const Setting setting{.policy = policy,
                            .instances = 3,
                            .spare_blocks = 2,
                            .draft = true,
                            .draft_weather = {{.loss = loss, .repeat = 0.4}}};
      TestRollout rollout(scene(), setting);
      const Result<Responses> found = rollout.run();
      ASSERT_TRUE(found) << found.error().message();
      EXPECT_EQ(difference(scene().expected(), *found), "") << setting << ", loss " << loss;
      EXPECT_GT(rollout.stats().drafted_tokens, rollout.stats().accepted_tokens);
      EXPECT_GT(rollout.stats().accepted_tokens, 0);
      for (const auto& transport : rollout.lossy_transports()) {
        lost += transport->num_lost();
        delays += transport->num_delays();
      }
      fetched += rollout.fetched_draft_tokens();
    }
  }
  EXPECT_GT(lost, 100);
  EXPECT_GT(delays, 100);
  EXPECT_GT(fetched, 0) << "what did arrive was used";
}

// With the very responses in the history nearly all drafts are right.
TEST_F(InstanceTest, HistoryMakesBetterDraftsAndChangesNothing) {
  rollout::ResponseHistory history({.enabled = true, .responses = 8, .memory = {1 << 20}});
  for (const Request& request : scene().requests()) {
    history.add(*request.prompt, scene().expected()[request.id.value()].tokens);
  }
  history.new_policy_version();
  std::vector<double> shares;
  for (const rollout::ResponseHistory* given : {static_cast<const rollout::ResponseHistory*>(nullptr),
                                                static_cast<const rollout::ResponseHistory*>(&history)}) {
    TestRollout rollout(scene(), {.instances = 2, .draft = true}, {}, given);
    const Result<Responses> found = rollout.run();
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ(difference(scene().expected(), *found), "");
    shares.push_back(static_cast<double>(rollout.stats().accepted_tokens) /
                     static_cast<double>(rollout.stats().drafted_tokens));
  }
  EXPECT_GT(shares[1], shares[0] + 0.1);
}

TEST_F(InstanceTest, AFailedInstanceLosesNothing) {
  for (const std::int64_t at : {1, 5, 30}) {
    std::int64_t failures = 0;
    for (int attempt = 0; attempt < 20 && failures == 0; ++attempt) {  // the others may be done before
      TestRollout rollout(scene(), {.instances = 3}, [at](int instance, std::int64_t step) -> Result<void> {
        if (instance == 1 && step >= at) return fail(Code::kIo, "the device fell over");
        if (instance != 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return {};
      });
      const Result<Responses> found = rollout.run();
      ASSERT_TRUE(found) << found.error().message();
      EXPECT_EQ(difference(scene().expected(), *found), "") << at;
      failures = rollout.dispatcher().stats().failed_instances;
    }
    EXPECT_EQ(failures, 1) << "at step " << at;
  }
}

// The same while responses are drafted and little memory sends KV to the disk.
TEST_F(InstanceTest, AFailureAmidDraftsAndDiskLosesNothing) {
  const RolloutScene crowd(6, 12);
  for (const Policy policy : {Policy::kSeer, Policy::kSeerPlus, Policy::kLeastAttained}) {
    const Setting setting{.policy = policy,
                          .instances = 3,
                          .chunk_tokens = 12,
                          .spare_blocks = 0,
                          .host_blocks = 0,
                          .disk_blocks = 500,
                          .draft = true};
    std::int64_t failures = 0, written = 0;
    // The others may be done before, and all may fit.
    for (int attempt = 0; attempt < 20 && (failures == 0 || written == 0); ++attempt) {
      TestRollout rollout(crowd, setting, [](int instance, std::int64_t step) -> Result<void> {
        if (instance == 1 && step >= 15) return fail(Code::kIo, "the device fell over");
        if (instance != 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return {};
      });
      const Result<Responses> found = rollout.run();
      ASSERT_TRUE(found) << found.error().message();
      EXPECT_EQ(difference(crowd.expected(), *found), "") << setting;
      EXPECT_GT(rollout.stats().accepted_tokens, 0);
      failures = rollout.dispatcher().stats().failed_instances;
      written = rollout.files()->bytes_written();
    }
    EXPECT_EQ(failures, 1) << setting;
    EXPECT_GT(written, 0) << setting;
  }
}

TEST_F(InstanceTest, AnInstanceThatHangsIsLeftBehind) {
  std::atomic<bool> wake = false;
  {
    TestRollout rollout(scene(), {.instances = 2, .timeout_s = 1},
                        [&wake](int instance, std::int64_t step) -> Result<void> {
                          while (instance == 0 && step >= 4 && !wake)
                            std::this_thread::sleep_for(std::chrono::milliseconds(5));
                          return {};
                        });
    const Result<Responses> found = rollout.run();
    wake = true;
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ(difference(scene().expected(), *found), "");
    EXPECT_EQ(rollout.dispatcher().stats().failed_instances, 1);
  }
}

TEST_F(InstanceTest, NoInstanceLeftIsAnErrorThatSaysWhy) {
  TestRollout rollout(scene(), {.instances = 2}, [](int, std::int64_t step) -> Result<void> {
    if (step >= 3) return fail(Code::kIo, "the device fell over");
    return {};
  });
  const Result<Responses> found = rollout.run();
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code(), Code::kUnavailable);
  EXPECT_NE(found.error().message().find("the device fell over"), std::string::npos);
}

TEST_F(InstanceTest, PartialStopsAtTheWantedGroups) {
  TestRollout rollout(scene(), {.policy = Policy::kPartial, .instances = 2});
  bool any_dropped = false;  // on a busy machine all may be done before the first group's end is heard of
  for (int attempt = 0; attempt < 20 && !any_dropped; ++attempt) {
    const Result<Responses> found = rollout.run(1);
    ASSERT_TRUE(found) << found.error().message();
    any_dropped = found->by_id.size() < scene().requests().size();
    for (const auto& [id, response] : found->by_id)
      EXPECT_EQ(difference(scene().expected()[id], response), "");
  }
  EXPECT_TRUE(any_dropped);
  // What was dropped leaves nothing behind: the same instances run everything.
  const Result<Responses> all = rollout.run();
  ASSERT_TRUE(all) << all.error().message();
  EXPECT_EQ(difference(scene().expected(), *all), "");
}

// Each step leaves responses unfinished, and the next has the same ids under other weights.
TEST_F(InstanceTest, NothingOfOldWeightsIsLeftInTheNextStep) {
  RolloutScene changing(4);
  TestRollout rollout(changing, {.policy = Policy::kPartial, .instances = 2, .draft = true});
  for (std::uint32_t step = 0; step < 3; ++step) {
    const Result<Responses> part = rollout.run(1);
    ASSERT_TRUE(part) << part.error().message();
    const Responses old = changing.expected();
    changing.new_weights(100 + step);
    ASSERT_NE(difference(old, changing.expected()), "");
    rollout.new_policy_version();
    const Result<Responses> found = rollout.run();
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ(difference(changing.expected(), *found), "");
  }
}

TEST_F(InstanceTest, InterruptionLeavesInstancesIdle) {
  TestRollout rollout(scene(), {.instances = 2});
  const std::atomic<bool> interrupted = true;
  const Result<Responses> stopped = rollout.run(0, &interrupted);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code(), Code::kCancelled);
  const Result<Responses> found = rollout.run();
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(difference(scene().expected(), *found), "");
}

// The instance's thread leaves the engine alone until the first order.
TEST_F(InstanceTest, TheEngineIsOthersUntilAnOrderComes) {
  for (int round = 0; round < 30; ++round) {
    testing::Compute compute(1, "auto");
    SteadyClock clock;
    ResponseStore responses;
    rollout::EventQueue events;
    const auto instance = Instance::create(InstanceId(0), {},
                                           {.model = &scene().model(),
                                            .context = compute.context(),
                                            .responses = &responses,
                                            .events = &events,
                                            .clock = &clock})
                              .value();
    const Request& request = scene().requests().front();
    ASSERT_TRUE(instance->engine().submit(request));
    std::vector<Response> finished;
    while (!instance->engine().idle()) ASSERT_TRUE(instance->engine().step(finished));
    ASSERT_EQ(finished.size(), 1U);
    EXPECT_EQ(difference(scene().expected()[request.id.value()], finished.front()), "");
  }
}

TEST_F(InstanceTest, RandomSettings) {
  std::mt19937 rng(11);
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    const RolloutScene scene(seed);
    for (int round = 0; round < 4; ++round) {
      constexpr std::array kPolicies = {Policy::kSeer, Policy::kSeerPlus, Policy::kFifo,
                                        Policy::kLeastAttained, Policy::kGroupRoundRobin};
      const Setting setting{.policy = kPolicies[rng() % kPolicies.size()],
                            .instances = static_cast<int>(1 + rng() % 4),
                            .chunk_tokens = static_cast<int>(1 + rng() % 80),
                            .spare_blocks = static_cast<std::int32_t>(rng() % 6),
                            .max_running = static_cast<std::int32_t>(1 + rng() % 8),
                            .host_blocks = static_cast<std::int64_t>(rng() % 20),
                            .disk_blocks = static_cast<std::int64_t>(rng() % 20),
                            .draft = rng() % 2 == 0,
                            .draft_weather = {{}}};
      TestRollout rollout(scene, setting);
      const Result<Responses> found = rollout.run();
      ASSERT_TRUE(found) << found.error().message() << " " << setting;
      ASSERT_EQ(difference(scene.expected(), *found), "") << "seed " << seed << ", " << setting;
    }
  }
}

}  // namespace
}  // namespace rondo::engine
