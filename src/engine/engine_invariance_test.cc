// What runs beside a request, in which portions, on how many threads and in how much memory changes no bit
// of its response.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "engine/workload.h"
#include "kernels/op_table.h"

namespace rondo::engine {
namespace {

// A decoder and requests for it, the same for the same seed, and the responses as a plain engine gives them.
struct Scene {
  std::unique_ptr<model::Model> model;
  std::vector<Request> requests;
  Responses expected;
};

Scene make_scene(std::uint32_t seed, const model::ModelSpec& spec, int num_groups = 6) {
  std::mt19937 rng(seed);
  Scene scene{testing::random_model(spec, seed), random_requests(rng, spec.vocab, num_groups), {}};
  scene.expected = run_all(*scene.model, {}, scene.requests);
  return scene;
}

struct NamedSpec {
  const char* name;
  model::ModelSpec spec;
};

// One of each kind: V = 1, 2, 4, 8; one, two and three queries per KV head; every storage type.
std::vector<NamedSpec> specs() {
  using kernels::DType;
  model::ModelSpec one = testing::tiny_spec(DType::kF16), two = testing::tiny_spec(DType::kF32),
                   four = testing::tiny_spec(DType::kBF16), eight = testing::tiny_spec(DType::kF16);
  one.heads = 9;
  one.kv_heads = 3;
  one.tied_embeddings = true;
  four.heads = four.kv_heads = 4;
  eight.heads = 16;
  eight.kv_heads = 8;
  eight.head_dim = 6;
  return {{"V1Fp16", one}, {"V2Fp32", two}, {"V4Bf16", four}, {"V8Fp16", eight}};
}

class EngineInvarianceTest : public ::testing::TestWithParam<NamedSpec> {
 protected:
  EngineInvarianceTest() : scene_(make_scene(20, GetParam().spec)) {}

  void expect_same(const RunSettings& settings) {
    EXPECT_EQ(difference(scene_.expected, run_all(*scene_.model, settings, scene_.requests)), "") << settings;
  }

  Scene scene_;
};

TEST_P(EngineInvarianceTest, RequestsAloneGiveTheSameAsTogether) {
  for (const Request& request : scene_.requests) {
    const Responses alone = run_all(*scene_.model, {}, {request});
    EXPECT_EQ(difference(scene_.expected[request.id.value()], alone[request.id.value()]), "")
        << request.id.value();
  }
}

TEST_P(EngineInvarianceTest, AnyNumberRunning) {
  for (std::int32_t max_running : {1, 2, 3, 5, 16, 32}) expect_same({.max_running = max_running});
}

TEST_P(EngineInvarianceTest, PrefillInPiecesOfAnySize) {
  expect_same({.max_running = 1, .max_batch_tokens = 1});
  for (std::int32_t tokens : {2, 3, 7, 16, 63, 64, 65, 130, 1000})
    expect_same({.max_running = 2, .max_batch_tokens = tokens});
}

TEST_P(EngineInvarianceTest, AnyNumberOfThreads) {
  for (int threads : {2, 3}) expect_same({.threads = threads});
}

TEST_P(EngineInvarianceTest, PreemptionForWantOfBlocks) {
  std::vector<Request> requests = scene_.requests;
  requests.resize(8);
  for (Request& request : requests) {
    request.max_new_tokens = 150;  // two block borders at least
    request.stop = nullptr;
  }
  TestEngine small(*scene_.model, {.num_blocks = blocks_of_longest(requests) + 2}), large(*scene_.model, {});
  EXPECT_EQ(difference(run_all(large, requests), run_all(small, requests)), "");
  EXPECT_EQ(large->stats().preemptions, 0);
  EXPECT_GT(small->stats().preemptions, 0);
  EXPECT_GT(small->stats().recomputed_tokens, 0);
}

TEST_P(EngineInvarianceTest, EveryKernelTarget) {
  for (const kernels::OpTable* target : kernels::available_targets()) expect_same({.target = target->name});
}

TEST_P(EngineInvarianceTest, SubmissionOrder) {
  std::vector<Request> shuffled = scene_.requests;
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(5));
  EXPECT_EQ(difference(scene_.expected, run_all(*scene_.model, {}, shuffled)), "");
}

TEST_P(EngineInvarianceTest, GroupsSharedOrSeparate) {
  TestEngine shared(*scene_.model, {}), separate(*scene_.model, {});
  EXPECT_EQ(difference(scene_.expected, run_all(shared, scene_.requests)), "");
  std::vector<Request> loners = scene_.requests;
  for (Request& request : loners) request.group = GroupId(request.id.value());
  EXPECT_EQ(difference(scene_.expected, run_all(separate, loners)), "");
  EXPECT_GT(shared->stats().shared_prompt_tokens, 0);
  EXPECT_EQ(separate->stats().shared_prompt_tokens, 0);
}

TEST_P(EngineInvarianceTest, LateArrivalsAndCancelledNeighbours) {
  std::vector<Request> first, late;
  for (const Request& request : scene_.requests)
    (request.id.value() % 2 == 0 ? first : late).push_back(request);
  std::vector<Response> cancelled;
  int steps = 0;
  const AfterStep meddle = [&](Engine& engine, Responses&) {
    if (++steps % 4 == 0 && !late.empty()) {
      ASSERT_TRUE(engine.submit(late.back()));
      late.pop_back();
    }
    if (steps % 20 != 0) return;
    if (auto response = engine.cancel(RequestId(steps / 20))) cancelled.push_back(*std::move(response));
  };
  TestEngine engine(*scene_.model, {.max_running = 6});
  Responses found = run_all(engine, first, meddle);
  for (const Request& request : late) found.by_id.merge(run_all(engine, {request}).by_id);

  ASSERT_FALSE(cancelled.empty());
  for (const Response& part : cancelled) {
    Response whole = scene_.expected[part.id.value()];
    ASSERT_LE(part.tokens.size(), whole.tokens.size());
    whole.tokens.resize(part.tokens.size());
    whole.logprobs.resize(part.tokens.size());
    whole.entropies.resize(part.tokens.size());
    whole.reason = batch::FinishReason::kCancelled;
    EXPECT_EQ(difference(whole, part), "") << "cancelled " << part.id.value();
    found.by_id[part.id.value()] = scene_.expected[part.id.value()];
  }
  EXPECT_EQ(difference(scene_.expected, found), "");
}

TEST_P(EngineInvarianceTest, DroppingTheKvOfTheSameWeights) {
  int steps = 0;
  TestEngine engine(*scene_.model, {});
  const auto drop = [&](Engine& running, Responses&) {
    if (++steps % 17 == 0) running.drop_kv();
  };
  EXPECT_EQ(difference(scene_.expected, run_all(engine, scene_.requests, drop)), "");
  EXPECT_GT(engine->stats().recomputed_tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, EngineInvarianceTest, ::testing::ValuesIn(specs()),
                         [](const auto& param) { return std::string(param.param.name); });

RunSettings random_settings(std::mt19937& rng, const std::vector<Request>& requests) {
  const auto targets = kernels::available_targets();
  RunSettings settings;
  settings.max_running = static_cast<std::int32_t>(1 + rng() % 12);
  settings.max_batch_tokens =
      settings.max_running + static_cast<std::int32_t>(rng() % 3 == 0 ? rng() % 4 : rng() % 200);
  settings.num_blocks = blocks_of_longest(requests) + static_cast<std::int32_t>(rng() % 6);
  settings.threads = static_cast<int>(1 + rng() % 3);
  settings.target = targets[rng() % targets.size()]->name;
  return settings;
}

TEST(EngineInvarianceTest, RandomModelsInRandomSettings) {
  constexpr kernels::DType kTypes[] = {kernels::DType::kF32, kernels::DType::kF16, kernels::DType::kBF16};
  std::int64_t preemptions = 0;
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    std::mt19937 rng(seed);
    const model::ModelSpec spec = random_spec(rng, kTypes[seed % 3]);
    const Scene scene = make_scene(seed, spec, 3);
    for (int round = 0; round < 2; ++round) {
      const RunSettings settings = random_settings(rng, scene.requests);
      TestEngine engine(*scene.model, settings);
      std::vector<Request> shuffled = scene.requests;
      std::shuffle(shuffled.begin(), shuffled.end(), rng);
      ASSERT_EQ(difference(scene.expected, run_all(engine, shuffled)), "")
          << "seed " << seed << ", " << settings;
      preemptions += engine->stats().preemptions;
    }
  }
  EXPECT_GT(preemptions, 0);
}

}  // namespace
}  // namespace rondo::engine
