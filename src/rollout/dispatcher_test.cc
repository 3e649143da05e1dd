// The dispatcher over instances that do as the test says.
#include "rollout/dispatcher.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rollout/scheduler_fixture.h"

namespace rondo::rollout {
namespace {

namespace fs = std::filesystem;
using Kind = InstanceEvent::Kind;

// Copies come at once.
class ScriptedInstance final : public EngineClient {
 public:
  using OnChunk = std::function<void(InstanceId, const ChunkOrder&)>;

  ScriptedInstance(const InstanceSpec& spec, OnChunk on_chunk)
      : spec_(spec), on_chunk_(std::move(on_chunk)) {}

  InstanceSpec spec() const override { return spec_; }
  void run_chunk(ChunkOrder order) override { on_chunk_(spec_.id, order); }
  void hand_over(RequestId, std::shared_ptr<Parcel> parcel) override { fill(parcel); }
  void group_order(GroupOrder order) override { fill(order.parcel); }
  void drop_kv() override {}
  void settle() override {}
  std::int64_t heartbeat() const override { return 0; }
  void abandon() override {}

  const std::vector<std::weak_ptr<const kv::Image>>& images() const { return images_; }

 private:
  void fill(const std::shared_ptr<Parcel>& parcel) {
    if (parcel == nullptr) return;
    auto image = std::make_shared<kv::Image>();
    image->num_blocks = 1;
    image->bytes = kv::ImageBuffer(100);
    images_.push_back(image);
    parcel->fill(std::move(image));
  }

  InstanceSpec spec_;
  OnChunk on_chunk_;
  std::vector<std::weak_ptr<const kv::Image>> images_;
};

class DispatcherTest : public testing::Test {
 protected:
  ~DispatcherTest() override { fs::remove_all(parent_); }

  void make(const Scheduler::Config& config, const Scheduler::Limits& limits,
            const std::vector<InstanceSpec>& specs) {
    auto files = KvFiles::create(parent_).value();
    files_ = files.get();
    Dispatcher::Deps deps{.scheduler = *Scheduler::create(config, limits),
                          .instances = {},
                          .events = &events_,
                          .store = std::make_unique<KvStore>(std::move(files)),
                          .clock = &clock_};
    instances_.clear();
    for (const InstanceSpec& spec : specs) {
      instances_.push_back(std::make_unique<ScriptedInstance>(
          spec, [this](InstanceId id, const ChunkOrder& order) { on_chunk_(id, order); }));
      deps.instances.push_back(instances_.back().get());
    }
    dispatcher_ = *Dispatcher::create({}, std::move(deps));
  }
  void run(const std::vector<GroupSpec>& groups) {
    std::size_t num_finished = 0, num_requests = 0;
    for (const GroupSpec& spec : groups) num_requests += spec.samples.size();
    const auto done = dispatcher_->run({.groups = groups, .finished = [&](RequestId) -> Result<void> {
                                          ++num_finished;
                                          return {};
                                        }});
    EXPECT_TRUE(done.has_value());
    EXPECT_EQ(num_finished, num_requests);
  }
  void report(Kind kind, int instance, std::int64_t request = -1, int tokens = 0) {
    events_.push({.kind = kind,
                  .instance = InstanceId(instance),
                  .request = RequestId(request),
                  .total_tokens = tokens,
                  .failure = kind == Kind::kFailed ? "the test says so" : ""});
  }
  std::int64_t blocks_stored() const {
    const KvLedger& ledger = dispatcher_->scheduler().ledger();
    return ledger.blocks_used(KvTier::kHost) + ledger.blocks_used(KvTier::kDisk);
  }
  // Of what the instance has sent away: images in memory and files.
  std::int64_t images_stored(int instance) const {
    files_->settle();
    std::int64_t count = 0;
    for (const auto& entry : fs::directory_iterator(files_->folder())) {
      count += entry.path().extension() == ".kv" ? 1 : 0;
    }
    for (const auto& image : instances_[static_cast<std::size_t>(instance)]->images()) {
      count += image.expired() ? 0 : 1;
    }
    return count;
  }

  fs::path parent_ = fs::temp_directory_path() / ("rondo_dispatcher_" + std::to_string(::getpid()));
  SteadyClock clock_;
  EventQueue events_;
  KvFiles* files_ = nullptr;
  ScriptedInstance::OnChunk on_chunk_;
  std::vector<std::unique_ptr<ScriptedInstance>> instances_;
  std::unique_ptr<Dispatcher> dispatcher_;
};

// Group 0's prompt leaves instance 0 for request 11, in whose chunk the instance fails, or after it. Request
// 10 runs on instance 1 meanwhile, and the rest must.
TEST_F(DispatcherTest, APromptThatAFailedInstanceWasSendingIsComputedAgain) {
  for (const bool arrived : {false, true}) {
    bool failed = false;
    int num_copies = 0;
    on_chunk_ = [&](InstanceId id, const ChunkOrder& order) {
      const std::int64_t request = order.request.value();
      if (request == 11 && !failed) {
        failed = true;
        EXPECT_EQ(id, InstanceId(0));
        EXPECT_EQ(blocks_stored(), 1);
        if (arrived) report(Kind::kFinished, 0, 11, 550);
        report(Kind::kFailed, 0);
        return report(Kind::kFinished, 1, 10, 600);
      }
      if (failed) {
        const bool is_stored = arrived && request != 1;  // which is the last to start
        EXPECT_EQ(blocks_stored(), is_stored ? 1 : 0) << request;
        num_copies += order.kv == nullptr ? 0 : 1;
        EXPECT_EQ(images_stored(0), arrived ? 1 : 0) << request;
      }
      if (request != 10) report(Kind::kFinished, static_cast<int>(id.value()), request, 500);
    };
    make({.policy = Policy::kSeer, .chunk_tokens = 700, .move_threshold = 10}, {.host_blocks = 100},
         {{InstanceId(0), 11, 1}, {InstanceId(1), 11, 1}});
    run({group(0, 2, 600), group(1, 2, 600)});
    EXPECT_TRUE(failed);
    EXPECT_EQ(num_copies, arrived ? 1 : 0);
  }
}

// Instance 0 runs 0, 20 and 30; for 0 to go on, 30 must leave. Instance 1 runs 10 meanwhile.
TEST_F(DispatcherTest, KvThatAFailedInstanceWasSendingIsComputedAgain) {
  for (const bool to_disk : {false, true}) {
    bool failed = false;
    on_chunk_ = [&](InstanceId id, const ChunkOrder& order) {
      const std::int64_t request = order.request.value();
      if (failed) {
        EXPECT_EQ(order.kv, nullptr) << request;
        EXPECT_EQ(blocks_stored(), 0) << request;
        EXPECT_EQ(images_stored(0), 0) << request;
        const bool ends = order.generated + order.max_tokens == 1300;
        report(ends ? Kind::kFinished : Kind::kChunkDone, static_cast<int>(id.value()), request,
               order.generated + order.max_tokens);
      } else if (request == 0 && order.generated > 0) {
        failed = true;
        EXPECT_EQ(id, InstanceId(0));
        EXPECT_EQ(blocks_stored(), 10);
        report(Kind::kFailed, 0);
        report(Kind::kFinished, 1, 10, 300);
      } else if (request == 30) {
        for (const int other : {0, 20, 30}) report(Kind::kChunkDone, 0, other, 640);
      }
    };
    make({.policy = Policy::kFifo, .chunk_tokens = 700, .move_threshold = 100},
         {.host_blocks = to_disk ? 0 : 100, .disk_blocks = to_disk ? 100 : 0},
         {{InstanceId(0), 33, 3}, {InstanceId(1), 33, 1}});
    std::vector<GroupSpec> groups;
    for (int g = 0; g < 4; ++g) groups.push_back(group(g, 1, 1300, 1));
    run(groups);
    EXPECT_TRUE(failed);
  }
}

}  // namespace
}  // namespace rondo::rollout
