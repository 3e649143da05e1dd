// Chunks, moves between engines with and without KV, and speculation change no bit of a response.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <vector>

#include "base/check.h"
#include "engine/workload.h"
#include "kv/prefix.h"

namespace rondo::engine {
namespace {

// Drafts trees of up to twelve nodes, of which about `percent_right` hold what plain decoding gave.
class Oracle final {
 public:
  Oracle(const Responses& truth, std::int32_t vocab, int percent_right, std::uint32_t seed)
      : truth_(truth), vocab_(vocab), percent_right_(percent_right), rng_(seed) {}

  void operator()(std::span<const DraftContext> contexts, batch::Drafts& drafts) {
    for (const DraftContext& context : contexts) {
      if (rng_() % 4 == 0) continue;
      const std::vector<Token>& whole = truth_[context.id.value()].tokens;
      const auto known = context.response.size();
      std::vector<Token> tokens;
      std::vector<std::int32_t> parents;
      std::vector<std::int32_t> depths;  // of nodes on the true path; -1 off it
      const auto size = static_cast<std::int32_t>(1 + rng_() % 12);
      for (std::int32_t node = 0; node < size; ++node) {
        const std::int32_t parent =
            rng_() % 2 == 0 ? node - 1
                            : static_cast<std::int32_t>(rng_() % static_cast<std::uint32_t>(node + 1)) - 1;
        const std::int32_t depth = parent < 0 ? 0
                                   : depths[static_cast<std::size_t>(parent)] < 0
                                       ? -1
                                       : depths[static_cast<std::size_t>(parent)] + 1;
        const bool known_truth = depth >= 0 && known + static_cast<std::size_t>(depth) < whole.size();
        const bool right = known_truth && static_cast<int>(rng_() % 100) < percent_right_;
        const Token token = right ? whole[known + static_cast<std::size_t>(depth)]
                                  : static_cast<Token>(rng_() % static_cast<std::uint32_t>(vocab_));
        bool taken = false;
        for (std::size_t i = 0; i < tokens.size(); ++i)
          taken = taken || (parents[i] == parent && tokens[i] == token);
        if (taken) break;
        tokens.push_back(token);
        parents.push_back(parent);
        depths.push_back(known_truth && token == whole[known + static_cast<std::size_t>(depth)] ? depth : -1);
      }
      drafts.add(context.slot, tokens, parents);
    }
  }

 private:
  const Responses& truth_;
  std::int32_t vocab_;
  int percent_right_;
  std::mt19937 rng_;
};

struct Sums {
  batch::Planner::Stats stats;
  std::int64_t damaged = 0;
  void add(const Engine& engine) {
    stats.accepted_tokens += engine.stats().accepted_tokens;
    stats.drafted_tokens += engine.stats().drafted_tokens;
    stats.restored_tokens += engine.stats().restored_tokens;
    stats.shared_prompt_tokens += engine.stats().shared_prompt_tokens;
    damaged += engine.num_damaged_images();
  }
};

// Runs requests in chunks on several engines: at each chunk's end a request stays, moves with its KV, moves
// without, or moves with KV that was damaged on the way.
class Cluster final {
 public:
  Cluster(std::vector<TestEngine*> engines, const std::vector<Request>& requests, std::uint32_t seed)
      : engines_(std::move(engines)), rng_(seed) {
    for (const Request& request : requests) {
      requests_[request.id] = request;
      submit(request);
    }
  }

  Responses run() {
    Responses done;
    while (done.by_id.size() < requests_.size()) {
      for (TestEngine* engine : engines_) {
        std::vector<Response> finished;
        RONDO_CHECK((*engine)->step(finished).has_value());
        done.add(finished);
        const auto parked = (*engine)->parked();
        const std::vector<batch::Planner::Parked> ends(parked.begin(), parked.end());
        for (const batch::Planner::Parked& end : ends) go_on(*engine, end.id);
      }
    }
    return done;
  }

 private:
  std::int32_t chunk() { return static_cast<std::int32_t>(1 + rng_() % 90); }

  void submit(Request request) {
    request.chunk_tokens = chunk();
    TestEngine& engine = *engines_[rng_() % engines_.size()];
    RONDO_CHECK(engine->submit(std::move(request)).has_value());
  }

  void go_on(TestEngine& engine, RequestId id) {
    const std::uint32_t what = rng_() % 8;
    if (what < 3) {
      RONDO_CHECK(engine->resume(id, chunk()));
      return;
    }
    Request request = requests_.at(id);
    if (what < 7) {
      const kv::SharedPrefix prefix(static_cast<std::int32_t>(request.prompt->size()));
      const std::int32_t split = rng_() % 2 == 0 ? prefix.full_blocks : 0;
      if (split > 0) request.stored.push_back(engine->export_kv(id, 0, split));
      request.stored.push_back(engine->export_kv(id, split));
      if (request.stored.back() == nullptr) request.stored.clear();
      if (what == 6 && !request.stored.empty()) damage(request);
    }
    request.progress = engine->take(id).value();
    submit(std::move(request));
  }

  void damage(Request& request) {
    auto broken = std::make_shared<kv::Image>();
    const kv::Image& whole = *request.stored.back();
    broken->first_block = whole.first_block;
    broken->num_blocks = whole.num_blocks;
    broken->num_tokens = whole.num_tokens;
    broken->bytes = kv::ImageBuffer(whole.bytes.size());
    std::ranges::copy(whole.bytes.span(), broken->bytes.data());
    broken->seal();
    broken->bytes[rng_() % broken->bytes.size()] ^= std::byte{4};
    request.stored.back() = std::move(broken);
  }

  std::vector<TestEngine*> engines_;
  std::map<RequestId, Request> requests_;
  std::mt19937 rng_;
};

struct Scene {
  std::unique_ptr<model::Model> model;
  std::vector<Request> requests;
  Responses expected;
};

Scene make_scene(std::uint32_t seed) {
  constexpr kernels::DType kTypes[] = {kernels::DType::kF32, kernels::DType::kF16, kernels::DType::kBF16};
  std::mt19937 rng(seed);
  const model::ModelSpec spec = random_spec(rng, kTypes[seed % 3]);
  Scene scene{testing::random_model(spec, seed), random_requests(rng, spec.vocab, 4), {}};
  scene.expected = run_all(*scene.model, {}, scene.requests);
  return scene;
}

TEST(EngineChunkTest, DraftsChangeNoBit) {
  Sums sums;
  for (std::uint32_t seed = 0; seed < 10; ++seed) {
    const Scene scene = make_scene(seed);
    for (const int percent : {0, 60, 90}) {
      TestEngine engine(
          *scene.model,
          {.max_running = 5, .max_batch_tokens = 40, .threads = 1 + static_cast<int>(seed % 2)});
      engine->set_drafter(Oracle(scene.expected, scene.model->spec().vocab, percent, seed));
      ASSERT_EQ(difference(scene.expected, run_all(engine, scene.requests)), "") << seed << ", " << percent;
      EXPECT_TRUE(percent < 90 || engine->stats().accepted_tokens > 0);
      sums.add(*engine);
    }
  }
  EXPECT_GT(sums.stats.accepted_tokens, 1000);
  EXPECT_GT(sums.stats.drafted_tokens, 2 * sums.stats.accepted_tokens);
}

TEST(EngineChunkTest, MoreLogitRowsThanOnePassHolds) {
  const Scene scene = make_scene(3);
  TestEngine engine(*scene.model, {.max_running = 16, .max_batch_tokens = 400});
  engine->set_drafter(Oracle(scene.expected, scene.model->spec().vocab, 80, 7));
  EXPECT_EQ(difference(scene.expected, run_all(engine, scene.requests)), "");
  EXPECT_GT(engine->stats().accepted_tokens, 0);
}

TEST(EngineChunkTest, ChunksMovesAndDraftsOnSeveralEnginesChangeNoBit) {
  Sums sums;
  for (std::uint32_t seed = 0; seed < 10; ++seed) {
    const Scene scene = make_scene(seed);
    const std::int32_t blocks = 2 * blocks_of_longest(scene.requests) + 4;
    TestEngine one(*scene.model, {.max_running = 3, .num_blocks = blocks});
    TestEngine two(*scene.model,
                   {.max_running = 8, .max_batch_tokens = 50, .num_blocks = blocks, .threads = 2});
    if (seed % 2 == 0) two->set_drafter(Oracle(scene.expected, scene.model->spec().vocab, 80, seed));
    Cluster cluster({&one, &two}, scene.requests, seed);
    ASSERT_EQ(difference(scene.expected, cluster.run()), "") << seed;
    sums.add(*one);
    sums.add(*two);
  }
  EXPECT_GT(sums.stats.restored_tokens, 1000);
  EXPECT_GT(sums.stats.shared_prompt_tokens, 100);
  EXPECT_GT(sums.damaged, 10);
}

// Samples of one group that come with all of their KV: the prompt's full blocks are put back once.
TEST(EngineChunkTest, AMovedPromptIsRestoredOnceForAllSamples) {
  const Scene scene = make_scene(2);
  const std::vector<Token> prompt(3 * kv::kBlockTokens + 5, 1);
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(simple_request(i, prompt, 40));
    requests.back().group = GroupId(0);
    requests.back().counter.sample = static_cast<std::uint32_t>(i);
  }
  const Responses expected = run_all(*scene.model, {}, requests);
  TestEngine one(*scene.model, {}), two(*scene.model, {});
  for (Request request : requests) {
    request.chunk_tokens = 10;
    ASSERT_TRUE(one->submit(request));
  }
  std::vector<Response> finished;
  while (!one->idle()) ASSERT_TRUE(one->step(finished));
  for (Request request : requests) {
    request.stored.push_back(one->export_kv(request.id, 0));
    request.progress = one->take(request.id).value();
    ASSERT_TRUE(two->submit(request));
  }
  EXPECT_EQ(difference(expected, run_to_end(two)), "");
  const std::int64_t num_prompt = std::ssize(prompt);
  const std::int64_t own = 9;  // of the ten tokens of a chunk all but the last are computed
  EXPECT_EQ(two->stats().restored_tokens, num_prompt + own + 3 * (1 + own));
  EXPECT_EQ(two->stats().shared_prompt_tokens, 3 * (num_prompt - 1));
  EXPECT_EQ(two->stats().computed_tokens, 4 * 30);
}

TEST(EngineChunkTest, DroppedKvVoidsWhatWasStored) {
  const Scene scene = make_scene(1);
  TestEngine one(*scene.model, {}), two(*scene.model, {});
  Request request = scene.requests.front();
  request.max_new_tokens = 20;
  request.stop = nullptr;
  const Responses expected = run_all(*scene.model, {}, {request});
  request.chunk_tokens = 1;
  ASSERT_TRUE(one->submit(request));
  std::vector<Response> finished;
  ASSERT_TRUE(one->step(finished));
  ASSERT_EQ(one->parked().size(), 1U);
  EXPECT_TRUE(one->idle());
  request.stored.push_back(one->export_kv(request.id, 0));
  ASSERT_NE(request.stored.back(), nullptr);
  request.progress = one->take(request.id).value();
  request.chunk_tokens = 0;
  ASSERT_TRUE(two->submit(request));
  two->drop_kv();
  EXPECT_EQ(difference(expected, run_to_end(two)), "");
  EXPECT_EQ(two->stats().restored_tokens, 0);
}

}  // namespace
}  // namespace rondo::engine
