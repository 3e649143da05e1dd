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
  for (const Policy policy : {Policy::kSeer, Policy::kLeastAttained, Policy::kPartial}) {
    TestRollout rollout(scene(), {.policy = policy, .instances = 3, .spare_blocks = 2, .draft = true});
    const Result<Responses> found = rollout.run(policy == Policy::kPartial ? 3 : 0);
    ASSERT_TRUE(found) << found.error().message();
    for (const auto& [id, response] : found->by_id) {
      EXPECT_EQ(difference(scene().expected()[id], response), "");
    }
    EXPECT_GT(rollout.stats().drafted_tokens, 0);
    EXPECT_EQ(rollout.draft_server().num_groups(), 0U);
    EXPECT_EQ(rollout.draft_server().memory_bytes(), 0U);
    for (const Drafting* drafting : rollout.draftings()) {
      EXPECT_EQ(drafting->client().num_groups(), 0U);
      EXPECT_EQ(drafting->client().memory_bytes(), 0U);
    }
  }
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

TEST_F(InstanceTest, NewWeightsVoidTheKv) {
  TestRollout rollout(scene(), {.instances = 2});
  for (int step = 0; step < 3; ++step) {
    const Result<Responses> found = rollout.run();
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ(difference(scene().expected(), *found), "");
    rollout.dispatcher().new_policy_version();
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
                            .disk_blocks = static_cast<std::int64_t>(rng() % 20)};
      TestRollout rollout(scene, setting);
      const Result<Responses> found = rollout.run();
      ASSERT_TRUE(found) << found.error().message() << " " << setting;
      ASSERT_EQ(difference(scene.expected(), *found), "") << "seed " << seed << ", " << setting;
    }
  }
}

}  // namespace
}  // namespace rondo::engine
