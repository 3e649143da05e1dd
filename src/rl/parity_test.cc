// The log-probability that the engine records while sampling is, bit for bit, the one that the trainer
// computes.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <memory>
#include <string>
#include <tuple>

#include "engine/engine.h"
#include "testing/tiny_model.h"
#include "train/unit_pass.h"

namespace rondo::rl {
namespace {

constexpr std::int32_t kSamples = 3;

// What a run of the engine differs in, without a say in its results.
struct Schedule {
  int threads = 1;
  std::int32_t max_batch_tokens = 2048;
  std::int32_t max_running = 64;
  std::int64_t kv_blocks = 64;
};

model::ModelSpec make_spec(kernels::DType dtype, std::int32_t chains) {
  model::ModelSpec spec = testing::tiny_spec(dtype);
  spec.heads = spec.kv_heads = chains;  // V divides 48
  if (chains == 2) spec.heads = 4;
  spec.tied_embeddings = chains == 4;
  return spec;
}

std::vector<engine::Response> generate(const model::Model& model,
                                       const std::vector<std::vector<Token>>& prompts, float temperature,
                                       const Schedule& schedule) {
  const testing::Compute compute(schedule.threads);
  engine::Engine::Config config;
  config.kv_memory.bytes =
      schedule.kv_blocks * static_cast<std::int64_t>(engine::KvStorage::block_bytes(model.spec()));
  config.batch.max_batch_tokens = schedule.max_batch_tokens;
  config.batch.max_running = schedule.max_running;
  const auto engine = engine::Engine::create(config, model, nullptr, compute.context()).value();
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    const auto prompt = std::make_shared<const std::vector<Token>>(prompts[p]);
    for (std::int32_t s = 0; s < kSamples; ++s) {
      const auto submitted = engine->submit(
          {.id = RequestId(static_cast<std::int64_t>(p) * kSamples + s),
           .group = GroupId(static_cast<std::int64_t>(p)),
           .prompt = prompt,
           .max_new_tokens = std::array{1, 20, 140}[static_cast<std::size_t>(s)],
           .sampling = {.temperature = temperature},
           .rng = Rng(1, RngPurpose::kRollout),
           .counter = {.ordinal = static_cast<std::uint32_t>(p), .sample = static_cast<std::uint32_t>(s)},
           .stop = nullptr});
      EXPECT_TRUE(submitted) << submitted.error().to_string();
    }
  }
  std::vector<engine::Response> finished, by_id(prompts.size() * kSamples);
  while (!engine->idle()) EXPECT_TRUE(engine->step(finished));
  EXPECT_EQ(engine->stats().preemptions > 0, schedule.kv_blocks < 10);
  for (engine::Response& r : finished) by_id[static_cast<std::size_t>(r.id.value())] = std::move(r);
  return by_id;
}

void expect_parity(const model::Model& model, const std::vector<std::vector<Token>>& prompts,
                   float temperature, const std::vector<engine::Response>& responses) {
  const testing::Compute compute(2);
  train::Workspace workspace(compute.context());
  train::UnitPass pass(model, workspace, 0);
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    train::TrainUnit unit{prompts[p], {}};
    for (std::size_t s = 0; s < kSamples; ++s)
      unit.samples.push_back({.tokens = responses[p * kSamples + s].tokens,
                              .old_logprobs = responses[p * kSamples + s].logprobs,
                              .ref_logprobs = {}});
    const auto found = pass.logprobs(unit, kernels::scoring_temperature(temperature)).value();
    for (std::size_t s = 0; s < kSamples; ++s) {
      const auto& expected = unit.samples[s].old_logprobs;
      ASSERT_EQ(found[s].size(), expected.size());
      ASSERT_GT(expected.size(), 0U);
      for (std::size_t i = 0; i < expected.size(); ++i)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(found[s][i]), std::bit_cast<std::uint32_t>(expected[i]))
            << "prompt of " << prompts[p].size() << ", sample " << s << ", token " << i << ", temperature "
            << temperature;
    }
  }
}

class ParityTest : public ::testing::TestWithParam<std::tuple<kernels::DType, std::int32_t>> {};

TEST_P(ParityTest, TrainerAndEngineAgreeBitForBit) {
  const auto model = testing::random_model(make_spec(std::get<0>(GetParam()), std::get<1>(GetParam())), 21);
  EXPECT_EQ(model->spec().chains(), std::get<1>(GetParam()));
  std::vector<std::vector<Token>> prompts;
  for (std::int64_t length : {58, 60, 1, 64, 130})
    prompts.push_back(testing::random_tokens(97, length, static_cast<std::uint32_t>(length)));
  // One batch of everything; and small chunks, three threads, a pool so small that responses are computed
  // again.
  const Schedule together, cramped{.threads = 3, .max_batch_tokens = 17, .max_running = 8, .kv_blocks = 6};
  for (float temperature : {1.0F, 0.7F, 0.0F})
    expect_parity(*model, prompts, temperature, generate(*model, prompts, temperature, together));
  expect_parity(*model, prompts, 0.7F, generate(*model, prompts, 0.7F, cramped));
}

INSTANTIATE_TEST_SUITE_P(
    Storage, ParityTest,
    ::testing::Values(std::tuple(kernels::DType::kF32, 1), std::tuple(kernels::DType::kF32, 4),
                      std::tuple(kernels::DType::kF16, 1), std::tuple(kernels::DType::kF16, 2),
                      std::tuple(kernels::DType::kF16, 4), std::tuple(kernels::DType::kBF16, 2)),
    [](const auto& p) {
      return std::string(kernels::dtype_name(std::get<0>(p.param))) + "_V" +
             std::to_string(std::get<1>(p.param));
    });

}  // namespace
}  // namespace rondo::rl
