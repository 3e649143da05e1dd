// KV and prompts that move between instances, host memory and disk change no bit of a rollout.
#include <algorithm>
#include <fstream>
#include <map>
#include <thread>

#include "engine/test_rollout.h"

namespace rondo::engine {
namespace {

class InstanceKvTest : public RolloutTest {};

std::int64_t num_files_below(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder)) return 0;
  std::int64_t count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    count += entry.path().extension() == ".kv" ? 1 : 0;
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

TEST_F(InstanceKvTest, APromptIsComputedOncePerInstance) {
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

// Three samples of one prompt, two instances without a scheduler, and the responses that one engine gives.
class SharedPrompt final {
 public:
  explicit SharedPrompt(const RolloutScene& scene) : scene_(scene) {
    for (int i = 0; i < 3; ++i) {
      requests_.push_back(simple_request(i, prompt_, kNew));
      requests_.back().group = GroupId(0);
      requests_.back().counter.sample = static_cast<std::uint32_t>(i);
      responses_.add(requests_.back());
    }
    old_ = run_all(scene_.model(), {}, requests_);
    one_ = make(0);
    two_ = make(1);
  }

  Instance& one() { return *one_; }
  Instance& two() { return *two_; }
  std::int64_t num_shared() const { return std::ssize(prompt_) - 1; }
  // The prompt's KV from the first instance, once it has carried this out.
  void copy_prompt(std::shared_ptr<rollout::Parcel> parcel) {
    one_->group_order(
        {.kind = rollout::GroupOrder::Kind::kCopyPrompt, .group = GroupId(0), .parcel = std::move(parcel)});
    one_->settle();
  }
  void expect_the_same_responses() {
    for (const Request& request : requests_) {
      const auto id = request.id.value();
      EXPECT_EQ(difference(old_[id], responses_.take(request.id).value()), "") << id;
    }
  }

  // Of the first response, which had got so far under the old weights, and of the second, which had not
  // begun.
  void expect_new_weights_after(std::size_t tokens) {
    const Response first = responses_.take(RequestId(0)).value();
    const auto head = [tokens](const auto& all) {
      return std::vector(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(tokens));
    };
    std::vector<Request> rest = {requests_[0], requests_[1]};
    rest[0].progress = {head(first.tokens), head(first.logprobs), head(first.entropies)};
    EXPECT_EQ(rest[0].progress.tokens, head(old_[0].tokens));
    const Responses expected = run_all(scene_.model(), {}, rest);
    EXPECT_EQ(difference(expected[0], first), "");
    EXPECT_EQ(difference(expected[1], responses_.take(RequestId(1)).value()), "");
  }

  static constexpr std::int32_t kNew = 20;

 private:
  std::unique_ptr<Instance> make(int id) {
    Instance::Deps deps{.model = &scene_.model(),
                        .context = compute_.context(),
                        .responses = &responses_,
                        .events = &events_,
                        .clock = &clock_};
    return Instance::create(InstanceId(id), {}, std::move(deps)).value();
  }

  const RolloutScene& scene_;
  std::vector<Token> prompt_ = std::vector<Token>(2 * kv::kBlockTokens + 3, 1);
  std::vector<Request> requests_;
  Responses old_;  // under the weights that the scene had at first
  ResponseStore responses_;
  rollout::EventQueue events_;
  SteadyClock clock_;
  testing::Compute compute_{1, "auto"};
  std::unique_ptr<Instance> one_, two_;
};

// The second instance gets the prompt's KV from the first instead of computing it.
TEST_F(InstanceKvTest, APromptComesFromTheInstanceThatHasIt) {
  SharedPrompt shared(scene());
  const auto copy_prompt = [&shared] {
    auto parcel = std::make_shared<rollout::Parcel>();
    shared.copy_prompt(parcel);
    return parcel;
  };
  EXPECT_EQ(copy_prompt()->image(), nullptr) << "it is not computed yet";
  shared.one().run_chunk({.request = RequestId(0), .group = GroupId(0)});
  shared.one().settle();
  for (int i = 1; i < 3; ++i) {
    shared.two().run_chunk(
        {.request = RequestId(i), .group = GroupId(0), .kv = i == 1 ? copy_prompt() : nullptr});
    shared.two().settle();
  }
  EXPECT_EQ(shared.two().stats().restored_tokens, shared.num_shared());
  EXPECT_EQ(shared.two().stats().shared_prompt_tokens, shared.num_shared());
  EXPECT_EQ(shared.two().stats().computed_tokens, 2 * SharedPrompt::kNew);
  shared.expect_the_same_responses();
}

// A sibling that was sent no KV does not compute the prompt that is under way for another one.
TEST_F(InstanceKvTest, SiblingsWaitForAPromptThatIsUnderWay) {
  for (const bool arrives : {true, false}) {
    SharedPrompt shared(scene());
    shared.one().run_chunk({.request = RequestId(0), .group = GroupId(0)});
    shared.one().settle();
    auto parcel = std::make_shared<rollout::Parcel>();
    Instance& two = shared.two();
    for (int i = 1; i < 3; ++i)
      two.run_chunk({.request = RequestId(i), .group = GroupId(0), .kv = i == 1 ? parcel : nullptr});
    // Both orders have been looked at, and nothing has run.
    for (const auto seen = two.heartbeat(); two.heartbeat() < seen + 3;)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    EXPECT_EQ(two.stats().steps, 0);
    if (arrives) {
      shared.copy_prompt(parcel);
    } else {
      parcel->fill(nullptr);
    }
    two.settle();
    EXPECT_EQ(two.stats().computed_tokens, 2 * SharedPrompt::kNew + (arrives ? 0 : shared.num_shared()));
    shared.expect_the_same_responses();
  }
}

// Probes come first, so that their prompts lie idle before the siblings run: with a single instance they can
// wait in the host alone.
TEST_F(InstanceKvTest, IdlePromptsWaitInTheHost) {
  const RolloutScene crowd(6, 12);
  const auto restored = [&](std::int64_t host_blocks) {
    TestRollout rollout(crowd, {.policy = Policy::kSeer,
                                .instances = 1,
                                .chunk_tokens = 1000,
                                .spare_blocks = 0,
                                .max_running = 1,
                                .host_blocks = host_blocks});
    const Result<Responses> found = rollout.run();
    EXPECT_TRUE(found.has_value());
    EXPECT_EQ(difference(crowd.expected(), found.value_or(Responses())), "");
    return rollout.stats().restored_tokens;
  };
  EXPECT_EQ(restored(0), 0);
  EXPECT_GT(restored(100), 0);
}

// The scheduler's books say which prompts an instance has: no engine ever gives one up by itself.
TEST_F(InstanceKvTest, KeptPromptsLeaveWhenTheSchedulerSaysSo) {
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

// Many requests on little memory: most KV goes through the disk.
Setting on_disk(std::int64_t host_blocks) {
  return {.policy = Policy::kLeastAttained,
          .instances = 2,
          .chunk_tokens = 12,
          .spare_blocks = 0,
          .host_blocks = host_blocks,
          .disk_blocks = 500};
}

TEST_F(InstanceKvTest, KvOnDiskIsReadAhead) {
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
      const std::int64_t read_ahead = rollout.dispatcher().scheduler().stats().prefetched_requests;
      EXPECT_TRUE(depth > 0 || read_ahead == 0);
      prefetches += read_ahead;
    }
  }
  EXPECT_GT(prefetches, 10);
}

// Files are damaged or removed while the rollout runs.
TEST_F(InstanceKvTest, KvLostOnDiskIsComputedAgain) {
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

// Every response runs in one chunk, so only prompts can come from elsewhere.
TEST_F(InstanceKvTest, APromptIsCopiedToWhereItsSiblingsRun) {
  const RolloutScene crowd(6, 12);
  std::int64_t restored = 0;
  for (int attempt = 0; attempt < 20 && restored == 0; ++attempt) {  // the first sample may not be that far
    TestRollout rollout(crowd,
                        {.policy = Policy::kFifo, .instances = 2, .chunk_tokens = 1000, .max_running = 1});
    const Result<Responses> found = rollout.run();
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ(difference(crowd.expected(), *found), "");
    restored = rollout.stats().restored_tokens;
  }
  EXPECT_GT(restored, 0);
}

TEST_F(InstanceKvTest, KvMovesThroughHostAndDisk) {
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

// A single instance without host memory has nowhere else to get KV back from.
TEST_F(InstanceKvTest, KvComesBackFromDiskAlone) {
  Setting setting{.policy = Policy::kLeastAttained,
                  .instances = 1,
                  .chunk_tokens = 12,
                  .spare_blocks = 0,
                  .host_blocks = 0};
  for (const std::int64_t disk_blocks : {0, 100}) {
    setting.disk_blocks = disk_blocks;
    std::int64_t bytes_read = 0;
    for (int attempt = 0; attempt < 20 && bytes_read == 0;
         ++attempt) {  // what is not written yet is not read
      TestRollout rollout(scene(), setting, [](int, std::int64_t) -> Result<void> {
        std::this_thread::sleep_for(std::chrono::microseconds(300));
        return {};
      });
      const Result<Responses> found = rollout.run();
      ASSERT_TRUE(found) << found.error().message();
      EXPECT_EQ(difference(scene().expected(), *found), "") << disk_blocks;
      EXPECT_EQ(rollout.stats().restored_tokens > 0, disk_blocks > 0) << disk_blocks;
      if (rollout.files() == nullptr) break;
      bytes_read = rollout.files()->bytes_read();
    }
    EXPECT_EQ(bytes_read > 0, disk_blocks > 0) << disk_blocks;
  }
}

// A response that is parked, and a prompt that is kept for its siblings, while the weights become others.
TEST_F(InstanceKvTest, NewWeightsVoidTheKvOfAParkedResponseAndOfAPrompt) {
  RolloutScene changing(4);
  SharedPrompt shared(changing);
  shared.one().run_chunk({.request = RequestId(0), .group = GroupId(0), .max_tokens = 7});
  shared.one().settle();
  ASSERT_TRUE(shared.one().engine().has_prompt(GroupId(0)));
  ASSERT_TRUE(shared.one().engine().is_live(RequestId(0)));
  changing.new_weights(100);
  shared.one().drop_kv();
  for (int i = 0; i < 2; ++i) shared.one().run_chunk({.request = RequestId(i), .group = GroupId(0)});
  shared.one().settle();
  shared.expect_new_weights_after(7);
}

// Request ids are the same in every process: what lies in the folder may be anyone's.
TEST_F(InstanceKvTest, TwoRolloutsShareADiskFolderAndNothingElse) {
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

}  // namespace
}  // namespace rondo::engine
