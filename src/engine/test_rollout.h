// Instances and a dispatcher over a small random model: what the tests of rollouts share.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/instance.h"
#include "engine/workload.h"
#include "rollout/dispatcher.h"
#include "rollout/draft_server.h"
#include "rollout/local_draft_transport.h"
#include "rollout/lossy_draft_transport.h"

namespace rondo::engine {

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
  std::optional<rollout::LossyDraftTransport::Weather> draft_weather = {};  // none: nothing is lost or late
  int prefetch = 8;
};

inline std::ostream& operator<<(std::ostream& out, const Setting& s) {
  return out << "policy " << static_cast<int>(s.policy) << ", " << s.instances << " instances, chunk "
             << s.chunk_tokens << ", spare " << s.spare_blocks << ", host " << s.host_blocks << ", disk "
             << s.disk_blocks << (s.draft ? ", drafts" : "")
             << (s.draft_weather ? " over a bad network" : "");
}

inline std::vector<rollout::GroupSpec> groups_of(const std::vector<Request>& requests,
                                                 const Responses& lengths) {
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
  /// Another model of the same shape, in the same place; what is expected is then its answer.
  void new_weights(std::uint32_t seed) {
    copy_weights(*testing::random_model(model_->spec(), seed), *model_);
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
    draft_server_->clear(PolicyVersion(version_));  // as the clients count: else it refuses all they say
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
        .store = std::make_unique<rollout::KvStore>(setting.disk_blocks > 0 ? make_files() : nullptr),
        .clock = &clock_,
        .drafts = setting.draft ? draft_server_.get() : nullptr};
    for (int i = 0; i < setting.instances; ++i) {
      teams_.push_back(std::make_unique<testing::Compute>(setting.threads, "auto"));
      Instance::Deps own{.model = &scene.model(),
                         .context = teams_.back()->context(),
                         .responses = &responses_,
                         .events = &events_,
                         .clock = &clock_};
      if (setting.draft) own.drafting = make_drafting(setting);
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

  void new_policy_version() {
    draft_server_->clear(PolicyVersion(++version_));
    dispatcher_->new_policy_version();
  }

  rollout::Dispatcher& dispatcher() { return *dispatcher_; }
  const rollout::DraftServer& draft_server() const { return *draft_server_; }
  /// Of each instance, while nothing runs.
  std::span<const Drafting* const> draftings() const { return draftings_; }
  /// Of other instances' responses, in all trees together.
  std::int64_t fetched_draft_tokens() const {
    std::int64_t sum = 0;
    for (const Drafting* drafting : draftings_) sum += drafting->client().stats().fetched_tokens;
    return sum;
  }
  std::span<const std::unique_ptr<rollout::LossyDraftTransport>> lossy_transports() const { return lossy_; }
  std::span<const std::unique_ptr<Instance>> instances() const { return instances_; }
  /// The disk tier; null without one.
  const rollout::KvFiles* files() const { return files_; }
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
  std::unique_ptr<rollout::KvFiles> make_files() {
    auto files = rollout::KvFiles::create(folder_).value();
    files_ = files.get();
    return files;
  }

  // Drafts cost nothing, so there are always some.
  std::unique_ptr<Drafting> make_drafting(const Setting& setting) {
    const auto cost =
        rollout::StepCost::create({.batches = {1.0}, .gammas = {0.0, 8.0}, .contexts = {1.0}}, {1.0, 1.0});
    transports_.push_back(std::make_unique<rollout::LocalDraftTransport>(*draft_server_));
    batch::DraftTransport* transport = transports_.back().get();
    if (setting.draft_weather) {
      const auto seed = static_cast<std::uint32_t>(lossy_.size());
      lossy_.push_back(
          std::make_unique<rollout::LossyDraftTransport>(*transport, *setting.draft_weather, seed));
      transport = lossy_.back().get();
    }
    Drafting::Config config;
    config.client.append_batch = config.client.fetch_period = 4;
    auto drafting = Drafting::create(config, cost.value(), *transport, history_).value();
    draftings_.push_back(drafting.get());
    return drafting;
  }

  const RolloutScene& scene_;
  const rollout::ResponseHistory* history_;
  std::filesystem::path folder_;
  SteadyClock clock_;
  std::int64_t version_ = 0;
  std::unique_ptr<rollout::DraftServer> draft_server_ = rollout::DraftServer::create({}, clock_).value();
  std::vector<std::unique_ptr<rollout::LocalDraftTransport>> transports_;
  std::vector<std::unique_ptr<rollout::LossyDraftTransport>> lossy_;
  std::vector<const Drafting*> draftings_;
  const rollout::KvFiles* files_ = nullptr;  // the dispatcher's
  ResponseStore responses_;
  rollout::EventQueue events_;
  std::vector<std::unique_ptr<testing::Compute>> teams_;
  std::vector<std::unique_ptr<Instance>> instances_;
  std::unique_ptr<rollout::Dispatcher> dispatcher_;
};

class RolloutTest : public ::testing::Test {
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

}  // namespace rondo::engine
