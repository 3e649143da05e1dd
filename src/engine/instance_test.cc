// A rollout over several instances gives the bits of a plain engine, whatever the policy, the chunks, the
// memory, and the instances that fail on the way.
#include "engine/instance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <thread>

#include "base/check.h"
#include "engine/workload.h"
#include "rollout/dispatcher.h"
#include "rollout/draft_server.h"
#include "rollout/local_draft_transport.h"

namespace rondo::engine {
namespace {

using rollout::Policy;

struct Setting {
  Policy policy = Policy::kSeer;
  int instances = 2;
  int chunk_tokens = 16;
  std::int32_t spare_blocks = 4;  // of an instance's pool, beyond the longest response's
  std::int32_t max_running = 4;
  std::int64_t host_blocks = 100;
  std::int64_t disk_blocks = 0;
  int timeout_s = 60;
  int threads = 1;
  bool draft = false;
  int prefetch = 8;
};

std::ostream& operator<<(std::ostream& out, const Setting& s) {
  return out << "policy " << static_cast<int>(s.policy) << ", " << s.instances << " instances, chunk "
             << s.chunk_tokens << ", spare " << s.spare_blocks << ", host " << s.host_blocks << ", disk "
             << s.disk_blocks;
}

std::vector<rollout::GroupSpec> groups_of(const std::vector<Request>& requests, const Responses& lengths) {
  std::vector<rollout::GroupSpec> groups;
  for (const Request& request : requests) {
    if (groups.empty() || groups.back().id != request.group) {
      groups.push_back({.id = request.group,
                        .prompt_tokens = static_cast<std::int32_t>(request.prompt->size()),
                        .samples = {}});
    }
    const auto length = static_cast<std::int32_t>(lengths[request.id.value()].tokens.size());
    groups.back().samples.push_back(
        {.id = request.id, .max_new_tokens = request.max_new_tokens, .true_tokens = length});
  }
  return groups;
}

// A model, its requests, and what a plain engine answers.
class RolloutScene final {
 public:
  explicit RolloutScene(std::uint32_t seed, int num_groups = 5) {
    std::mt19937 rng(seed);
    const model::ModelSpec spec = random_spec(rng, kernels::DType::kF16);
    model_ = testing::random_model(spec, seed);
    requests_ = random_requests(rng, spec.vocab, num_groups);
    expected_ = run_all(*model_, {}, requests_);
  }
  const model::Model& model() const { return *model_; }
  const std::vector<Request>& requests() const { return requests_; }
  const Responses& expected() const { return expected_; }

 private:
  std::unique_ptr<model::Model> model_;
  std::vector<Request> requests_;
  Responses expected_;
};

using BeforeStep = std::function<Result<void>(int instance, std::int64_t step)>;

// Instances and a dispatcher over a scene.
class TestRollout final {
 public:
  TestRollout(const RolloutScene& scene, const Setting& setting, const BeforeStep& before_step = {},
              const rollout::ResponseHistory* history = nullptr)
      : scene_(scene),
        history_(history),
        folder_(std::filesystem::temp_directory_path() / ("rondo_kv_" + std::to_string(::getpid()))) {
    const auto block = static_cast<std::int64_t>(KvStorage::block_bytes(scene.model().spec()));
    Engine::Config config;
    config.kv_memory.bytes = block * (blocks_of_longest(scene.requests()) + setting.spare_blocks);
    config.batch = {.max_batch_tokens = 128, .max_running = setting.max_running};
    rollout::Dispatcher::Deps deps{
        .scheduler = rollout::Scheduler::create(
                         {.policy = setting.policy,
                          .chunk_tokens = setting.chunk_tokens,
                          .max_spread = 2,
                          .move_threshold = 8},
                         {.host_blocks = setting.host_blocks, .disk_blocks = setting.disk_blocks})
                         .value(),
        .instances = {},
        .events = &events_,
        .store = std::make_unique<rollout::KvStore>(
            setting.disk_blocks > 0 ? rollout::KvFiles::create(folder_).value() : nullptr),
        .clock = &clock_,
        .drafts = setting.draft ? draft_server_.get() : nullptr};
    for (int i = 0; i < setting.instances; ++i) {
      teams_.push_back(std::make_unique<testing::Compute>(setting.threads, "auto"));
      Instance::Deps own{.model = &scene.model(),
                         .context = teams_.back()->context(),
                         .responses = &responses_,
                         .events = &events_,
                         .clock = &clock_};
      if (setting.draft) own.drafting = make_drafting();
      if (before_step) own.before_step = [=](std::int64_t step) { return before_step(i, step); };
      instances_.push_back(Instance::create(InstanceId(i), config, std::move(own)).value());
      deps.instances.push_back(instances_.back().get());
    }
    dispatcher_ = rollout::Dispatcher::create(
                      {.instance_timeout_s = setting.timeout_s, .prefetch_responses = setting.prefetch},
                      std::move(deps))
                      .value();
  }
  ~TestRollout() { std::filesystem::remove_all(folder_); }

  Result<Responses> run(std::int64_t goal_groups = 0, const std::atomic<bool>* interrupted = nullptr) {
    Responses found;
    responses_.clear();
    for (const Request& request : scene_.requests()) responses_.add(request);
    const auto finished = [&](RequestId id) -> Result<void> {
      std::vector<Response> one;
      one.push_back(responses_.take(id).value());
      found.add(one);
      return {};
    };
    const auto groups = groups_of(scene_.requests(), scene_.expected());
    RONDO_TRY(dispatcher_->run(
        {.groups = groups, .goal_groups = goal_groups, .finished = finished, .interrupted = interrupted}));
    return found;
  }

  rollout::Dispatcher& dispatcher() { return *dispatcher_; }
  const rollout::DraftServer& draft_server() const { return *draft_server_; }
  /// Of each instance, while nothing runs.
  std::span<const Drafting* const> draftings() const { return draftings_; }
  std::span<const std::unique_ptr<Instance>> instances() const { return instances_; }
  batch::Planner::Stats stats() const {
    batch::Planner::Stats sum;
    for (const auto& instance : instances_) {
      sum.preemptions += instance->stats().preemptions;
      sum.evicted_parked += instance->stats().evicted_parked;
      sum.restored_tokens += instance->stats().restored_tokens;
      sum.shared_prompt_tokens += instance->stats().shared_prompt_tokens;
      sum.evicted_prefixes += instance->stats().evicted_prefixes;
      sum.drafted_tokens += instance->stats().drafted_tokens;
      sum.accepted_tokens += instance->stats().accepted_tokens;
    }
    return sum;
  }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  // Drafts cost nothing, so there are always some.
  std::unique_ptr<Drafting> make_drafting() {
    const auto cost =
        rollout::StepCost::create({.batches = {1.0}, .gammas = {0.0, 8.0}, .contexts = {1.0}}, {1.0, 1.0});
    transports_.push_back(std::make_unique<rollout::LocalDraftTransport>(*draft_server_));
    Drafting::Config config;
    config.client.append_batch = config.client.fetch_period = 4;
    auto drafting = Drafting::create(config, cost.value(), *transports_.back(), history_).value();
    draftings_.push_back(drafting.get());
    return drafting;
  }

  const RolloutScene& scene_;
  const rollout::ResponseHistory* history_;
  std::filesystem::path folder_;
  SteadyClock clock_;
  std::unique_ptr<rollout::DraftServer> draft_server_ = rollout::DraftServer::create({}, clock_).value();
  std::vector<std::unique_ptr<rollout::LocalDraftTransport>> transports_;
  std::vector<const Drafting*> draftings_;
  ResponseStore responses_;
  rollout::EventQueue events_;
  std::vector<std::unique_ptr<testing::Compute>> teams_;
  std::vector<std::unique_ptr<Instance>> instances_;
  std::unique_ptr<rollout::Dispatcher> dispatcher_;
};

std::int64_t num_files_below(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder)) return 0;
  std::int64_t count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    count += entry.is_regular_file() ? 1 : 0;
  }
  return count;
}

// Removes the KV files that are there, or turns their last byte around.
int spoil_files(const std::filesystem::path& folder, bool damage) {
  int count = 0;
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error)) {
    if (entry.path().extension() == ".kv") files.push_back(entry.path());
  }
  for (const auto& path : files) {
    if (damage) {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(-1, std::ios::end);
      const auto last = static_cast<char>(~file.peek());
      file.seekp(-1, std::ios::end);
      if (file.put(last)) ++count;
    } else {
      count += std::filesystem::remove(path, error) ? 1 : 0;
    }
  }
  return count;
}

class InstanceTest : public ::testing::Test {
 protected:
  static const RolloutScene& scene() {
    static const RolloutScene scene(4);
    return scene;
  }
  static void expect_same(const Setting& setting) {
    TestRollout rollout(scene(), setting);
    const Result<Responses> found = rollout.run();
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ(difference(scene().expected(), *found), "") << setting;
    rollout.dispatcher().scheduler().check_invariants();
  }
};

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
TEST_F(InstanceTest, APromptIsComputedOncePerInstance) {
  std::int64_t shared = 0;
  for (const rollout::GroupSpec& group : groups_of(scene().requests(), scene().expected())) {
    shared += (std::ssize(group.samples) - 1) * (group.prompt_tokens - 1);
  }
  for (const Policy policy : {Policy::kSeer, Policy::kFifo}) {
    TestRollout rollout(
        scene(),
        {.policy = policy, .instances = 1, .chunk_tokens = 1000, .spare_blocks = 100, .max_running = 1});
    ASSERT_TRUE(rollout.run());
    EXPECT_EQ(rollout.stats().shared_prompt_tokens, shared);
    EXPECT_EQ(rollout.instances()[0]->engine().num_kept_prompts(), 0U);
  }
}

// The second instance gets the prompt's KV from the first instead of computing it.
TEST_F(InstanceTest, APromptComesFromTheInstanceThatHasIt) {
  const std::vector<Token> prompt(2 * kv::kBlockTokens + 3, 1);
  std::vector<Request> requests;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(simple_request(i, prompt, 20));
    requests.back().group = GroupId(0);
    requests.back().counter.sample = static_cast<std::uint32_t>(i);
  }
  const Responses expected = run_all(scene().model(), {}, requests);
  ResponseStore responses;
  rollout::EventQueue events;
  SteadyClock clock;
  testing::Compute compute(1, "auto");
  const auto make = [&](int id) {
    Instance::Deps deps{.model = &scene().model(),
                        .context = compute.context(),
                        .responses = &responses,
                        .events = &events,
                        .clock = &clock};
    return Instance::create(InstanceId(id), {}, std::move(deps)).value();
  };
  const auto one = make(0), two = make(1);
  for (const Request& request : requests) responses.add(request);
  const auto copy_prompt = [&one] {
    auto parcel = std::make_shared<rollout::Parcel>();
    one->group_order({.kind = rollout::GroupOrder::Kind::kCopyPrompt, .group = GroupId(0), .parcel = parcel});
    one->settle();
    return parcel;
  };
  EXPECT_EQ(copy_prompt()->image(), nullptr) << "it is not computed yet";
  one->run_chunk({.request = RequestId(0), .group = GroupId(0)});
  one->settle();
  for (int i = 1; i < 3; ++i) {
    two->run_chunk({.request = RequestId(i), .group = GroupId(0), .kv = i == 1 ? copy_prompt() : nullptr});
    two->settle();
  }
  EXPECT_EQ(two->stats().restored_tokens, std::ssize(prompt) - 1);
  EXPECT_EQ(two->stats().shared_prompt_tokens, std::ssize(prompt) - 1);
  EXPECT_EQ(two->stats().computed_tokens, 2 * 20);
  for (const Request& request : requests) {
    const auto id = request.id.value();
    EXPECT_EQ(difference(expected[id], responses.take(request.id).value()), "") << id;
  }
}

// The scheduler's books say which prompts an instance has: no engine ever gives one up by itself.
TEST_F(InstanceTest, KeptPromptsLeaveWhenTheSchedulerSaysSo) {
  for (const std::int32_t spare_blocks : {0, 1, 3}) {
    TestRollout rollout(scene(), {.instances = 2, .spare_blocks = spare_blocks, .max_running = 2});
    const Result<Responses> found = rollout.run();
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ(difference(scene().expected(), *found), "");
    EXPECT_EQ(rollout.stats().evicted_prefixes, 0);
    EXPECT_EQ(rollout.stats().preemptions, 0);
    for (const auto& instance : rollout.instances()) EXPECT_EQ(instance->engine().num_kept_prompts(), 0U);
  }
}

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

// Many requests on little memory: most KV goes through the disk.
Setting on_disk(std::int64_t host_blocks) {
  return {.policy = Policy::kLeastAttained,
          .instances = 2,
          .chunk_tokens = 12,
          .spare_blocks = 0,
          .host_blocks = host_blocks,
          .disk_blocks = 500};
}

TEST_F(InstanceTest, KvOnDiskIsReadAhead) {
  const RolloutScene crowd(6, 12);
  std::int64_t prefetches = 0;
  for (const std::int64_t host_blocks : {4, 8, 16}) {
    for (const int depth : {0, 1, 8}) {
      Setting setting = on_disk(host_blocks);
      setting.prefetch = depth;
      TestRollout rollout(crowd, setting);
      const Result<Responses> found = rollout.run();
      ASSERT_TRUE(found) << found.error().message();
      EXPECT_EQ(difference(crowd.expected(), *found), "") << setting << ", ahead " << depth;
      EXPECT_EQ(num_files_below(rollout.folder()), 0);
      EXPECT_TRUE(depth > 0 || rollout.dispatcher().stats().prefetches == 0);
      prefetches += rollout.dispatcher().stats().prefetches;
    }
  }
  EXPECT_GT(prefetches, 10);
}

// Files are damaged or removed while the rollout runs.
TEST_F(InstanceTest, KvLostOnDiskIsComputedAgain) {
  const RolloutScene crowd(6, 12);
  for (const bool damaged : {false, true}) {
    int hits = 0;
    for (int round = 0; round < 30 && hits == 0; ++round) {
      std::filesystem::path folder;
      TestRollout rollout(crowd, on_disk(4), [&](int instance, std::int64_t) -> Result<void> {
        if (instance == 0) hits += spoil_files(folder, damaged);
        return {};
      });
      folder = rollout.folder();
      const Result<Responses> found = rollout.run();
      ASSERT_TRUE(found) << found.error().message();
      EXPECT_EQ(difference(crowd.expected(), *found), "");
    }
    EXPECT_GT(hits, 0);
  }
}

TEST_F(InstanceTest, KvMovesThroughHostAndDisk) {
  for (const std::int64_t host_blocks : {0, 3, 100}) {
    for (const std::int64_t disk_blocks : {0, 100}) {
      TestRollout rollout(scene(), {.policy = Policy::kLeastAttained,
                                    .instances = 2,
                                    .chunk_tokens = 12,
                                    .spare_blocks = 0,
                                    .host_blocks = host_blocks,
                                    .disk_blocks = disk_blocks});
      const Result<Responses> found = rollout.run();
      ASSERT_TRUE(found) << found.error().message();
      EXPECT_EQ(difference(scene().expected(), *found), "") << host_blocks << ", " << disk_blocks;
      if (host_blocks == 100) {
        EXPECT_GT(rollout.stats().restored_tokens, 0);
        EXPECT_GT(rollout.dispatcher().stats().migrations, 0);
      }
      EXPECT_EQ(num_files_below(rollout.folder()), 0);
    }
  }
}

// Request ids are the same in every process: what lies in the folder may be anyone's.
TEST_F(InstanceTest, TwoRolloutsShareADiskFolderAndNothingElse) {
  const RolloutScene other(9);
  const Setting setting{.policy = Policy::kLeastAttained,
                        .chunk_tokens = 12,
                        .spare_blocks = 0,
                        .host_blocks = 0,
                        .disk_blocks = 100};
  TestRollout mine(scene(), setting), theirs(other, setting);
  ASSERT_EQ(mine.folder(), theirs.folder());
  Result<Responses> theirs_found;
  std::thread thread([&] { theirs_found = theirs.run(); });
  const Result<Responses> found = mine.run();
  thread.join();
  ASSERT_TRUE(found) << found.error().message();
  ASSERT_TRUE(theirs_found) << theirs_found.error().message();
  EXPECT_EQ(difference(scene().expected(), *found), "");
  EXPECT_EQ(difference(other.expected(), *theirs_found), "");
}

TEST_F(InstanceTest, AFailedInstanceLosesNothing) {
  std::int64_t failures = 0;
  for (const std::int64_t at : {1, 5, 30}) {
    TestRollout rollout(scene(), {.instances = 3}, [at](int instance, std::int64_t step) -> Result<void> {
      if (instance == 1 && step >= at) return fail(Code::kIo, "the device fell over");
      return {};
    });
    const Result<Responses> found = rollout.run();
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ(difference(scene().expected(), *found), "") << at;
    failures += rollout.dispatcher().stats().failed_instances;
  }
  EXPECT_GE(failures, 1) << "a later step may never come: the others are done before";
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
  const Result<Responses> found = rollout.run(3);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_LT(found->by_id.size(), scene().requests().size());
  for (const auto& [id, response] : found->by_id) EXPECT_EQ(difference(scene().expected()[id], response), "");
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
