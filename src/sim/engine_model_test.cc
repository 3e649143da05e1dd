#include "sim/engine_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rondo::sim {
namespace {

using ::testing::HasSubstr;

ModelShape model(std::string_view name) {
  return *find_model(name);
}

EngineModel engine(const EngineModel::Config& config, std::string_view device, std::string_view shape) {
  auto result = EngineModel::create(config, *find_device(device), model(shape));
  EXPECT_TRUE(result) << result.error().message();
  return *std::move(result);
}

TEST(EngineModel, PresetsHaveTheirPublishedSizes) {
  EXPECT_NEAR(model("moonlight-16b-a3b").total_params(), 15.96e9, 0.05e9);
  EXPECT_NEAR(model("qwen2-vl-72b").total_params() * 2, 146.8e9, 1e9);
  EXPECT_NEAR(model("kimi-k2").total_params(), 1.026e12, 0.01e12);
  EXPECT_NEAR(model("kimi-k2").active_params(), 32e9, 1e9);
  EXPECT_NEAR(model("qwen3-32b").total_params(), 32.8e9, 0.2e9);
  EXPECT_NEAR(model("qwen3-235b-a22b").total_params(), 235e9, 1e9);
  EXPECT_NEAR(model("qwen3-235b-a22b").active_params(), 22e9, 0.7e9);
  EXPECT_NEAR(model("smollm2-135m").total_params(), 134.5e6, 0.5e6);
}

TEST(EngineModel, KvPerTokenFollowsTheAttentionKind) {
  EXPECT_EQ(model("qwen2-vl-72b").kv_bytes_per_token(), 320 * 1024);
  EXPECT_EQ(model("moonlight-16b-a3b").kv_bytes_per_token(), 27 * 576 * 2);
  EXPECT_EQ(model("kimi-k2").kv_bytes_per_token(), 61 * 576 * 2);
}

// 8 x 80 GB x 0.9 less 146.8 GB of weights, by 320 KiB.
TEST(EngineModel, KvCapacityIsWhatWeightsLeave) {
  const EngineModel e = engine({.devices = 8}, "h800", "qwen2-vl-72b");
  EXPECT_NEAR(static_cast<double>(e.kv_tokens()), (576e9 - 146.8e9) / 327680, 3000);
  const EngineModel less =
      engine({.devices = 8, .reserved_memory = {10'000'000'000}}, "h800", "qwen2-vl-72b");
  EXPECT_NEAR(static_cast<double>(e.kv_tokens() - less.kv_tokens()), 80e9 / 327680, 2);
}

TEST(EngineModel, TensorParallelismKeepsALatentOnEveryDevice) {
  const EngineModel one = engine({}, "h800", "moonlight-16b-a3b");
  const EngineModel four = engine({.devices = 4}, "h800", "moonlight-16b-a3b");
  EXPECT_NEAR(static_cast<double>(four.kv_tokens()), (72e9 - 31.9e9 / 4) / 31104, 3000);
  EXPECT_LT(four.kv_tokens(), 2 * one.kv_tokens());
}

// With everything else free a step of one sequence reads the weights it uses, once.
TEST(EngineModel, SmallBatchesReadWeightsAndLargeOnesCompute) {
  const EngineModel::Config bare{.devices = 8,
                                 .memory_efficiency = 1.0,
                                 .flops_efficiency = 1.0,
                                 .step_overhead_ms = 0,
                                 .sequence_overhead_us = 0,
                                 .collective_latency_us = 0};
  const EngineModel e = engine(bare, "h800", "qwen2-vl-72b");
  const double dense = model("qwen2-vl-72b").dense_params();
  EXPECT_NEAR(e.step_time({1, 1}, 0).fixed_s, 2 * dense / 8 / 3.35e12, 1e-4);
  EXPECT_NEAR(e.step_time({1, 1}, 0).per_kv_token_s, 327680 / 8 / 3.35e12, 1e-15);
  const double many = 8192;
  const double compute = 2 * dense * many / 8 / 989e12;
  EXPECT_GT(e.step_time({many, many}, 0).fixed_s, compute);
  EXPECT_LT(e.step_time({many, many}, 0).fixed_s, 2.5 * compute);  // the all-reduces come to it
}

TEST(EngineModel, FewRowsReadFewExperts) {
  const EngineModel e =
      engine({.step_overhead_ms = 0, .sequence_overhead_us = 0}, "h800", "moonlight-16b-a3b");
  const double one = e.step_time({1, 1}, 0).fixed_s;
  const double all = e.step_time({64, 64}, 0).fixed_s;
  EXPECT_NEAR(all / one, 31.9 / 5.0, 1.0);  // all weights over the active ones
}

TEST(EngineModel, DraftsCostRowsAndOverhead) {
  const EngineModel e = engine({.devices = 8}, "h800", "qwen2-vl-72b");
  const double plain = e.step_time({100, 100}, 1e6).seconds(1e6);
  const double drafted = e.step_time({100, 300}, 1e6).seconds(1e6);
  EXPECT_GT(drafted, plain + 1e-3 + 100 * 20e-6 - 1e-9);
  const auto profile = *e.as_profile(8);
  EXPECT_NEAR(profile.seconds(64, 2, 32768), e.step_time({64, 192}, 64.0 * 32768).seconds(64.0 * 32768),
              1e-12);
}

TEST(EngineModel, PrefillGrowsWithTheSquareOfItsLength) {
  const EngineModel e = engine({.devices = 8}, "h800", "qwen2-vl-72b");
  EXPECT_EQ(e.prefill_s(0, 100), 0.0);
  EXPECT_GT(e.prefill_s(20000, 0), 2.0 * e.prefill_s(10000, 0));
  EXPECT_NEAR(e.prefill_s(10000, 0) + e.prefill_s(10000, 10000), e.prefill_s(20000, 0), 1e-9);
}

TEST(EngineModel, NamesTheNearestPresetAndTheSettingToChange) {
  EXPECT_THAT(find_device("h80").error().message(), HasSubstr("nearest is 'h800'"));
  EXPECT_THAT(find_model("qwen3-32").error().message(), HasSubstr("nearest is 'qwen3-32b'"));
  const auto small = EngineModel::create({}, *find_device("h800"), model("qwen2-vl-72b"));
  EXPECT_THAT(small.error().message(),
              ::testing::AllOf(HasSubstr("engine.devices"), HasSubstr("at least 3 devices")));
  const auto cpu = EngineModel::create({}, *find_device("cpu"), model("smollm2-135m"));
  EXPECT_THAT(cpu.error().message(), HasSubstr("engine.step_cost_file"));
}

std::string refusal(const EngineModel::Config& config, const Device& device, const ModelShape& shape) {
  const auto result = EngineModel::create(config, device, shape);
  return result ? "no error" : result.error().message();
}

// Attention weights lie on every device, so that the number is more than the quotient of two sizes.
TEST(EngineModel, SaysHowManyDevicesAreEnough) {
  const Device h800 = *find_device("h800");
  const EngineModel::Config experts{.parallelism = Parallelism::kDataWithExperts, .devices = 16};
  const ModelShape kimi = model("kimi-k2");
  const std::string message = refusal(experts, h800, kimi);
  ASSERT_NE(message.find("at least "), std::string::npos) << message;
  const int named = std::stoi(message.substr(message.find("at least ") + 9));
  EXPECT_GT(named, 16);
  EngineModel::Config enough = experts;
  enough.devices = named;
  EXPECT_EQ(refusal(enough, h800, kimi), "no error");
  enough.devices = named - 1;
  EXPECT_THAT(refusal(enough, h800, kimi), HasSubstr("at least "));
}

TEST(EngineModel, SaysWhereMoreDevicesDoNotHelp) {
  const Device h800 = *find_device("h800");
  EXPECT_THAT(refusal({.reserved_memory = {200'000'000'000}}, h800, model("qwen3-32b")),
              ::testing::AllOf(HasSubstr("more devices do not help"), HasSubstr("engine.reserved_memory")));
}

TEST(EngineModel, RefusesStepsOfNoTimeOrOfYears) {
  Device slow = *find_device("h800");
  slow.flops = 1e-288;
  EXPECT_THAT(refusal({}, slow, model("smollm2-135m")), HasSubstr("a step of one response"));
  EXPECT_THAT(refusal({.memory_efficiency = 1e-12}, *find_device("h800"), model("smollm2-135m")),
              HasSubstr("engine.memory_efficiency"));
  EXPECT_THAT(refusal({.spec_step_overhead_ms = 1e9}, *find_device("h800"), model("smollm2-135m")),
              HasSubstr("a step of one response"));
}

TEST(EngineModel, AProfileOfAbsurdStepsIsRefusedRatherThanMade) {
  const EngineModel e = engine({.spec_sequence_overhead_us = 1e9}, "h800", "smollm2-135m");
  EXPECT_THAT(e.as_profile(8).error().message(), HasSubstr("seconds"));
}

// Both all-reduces of a layer send 2 * 15/16 of the rows over each device's slowest link.
TEST(EngineModel, CollectivesBeyondTheFastDomainTakeTheSlowLinks) {
  const ModelShape shape = model("qwen3-32b");
  const auto transfer = [&](const char* device, double link) {
    Device fast = *find_device(device);
    fast.peer_bandwidth = fast.rdma_bandwidth = 1e30;
    const EngineModel::Config config{.devices = 16};
    const double with =
        EngineModel::create(config, *find_device(device), shape)->step_time({64, 64}, 0).fixed_s;
    const double without = EngineModel::create(config, fast, shape)->step_time({64, 64}, 0).fixed_s;
    const double bytes = 2.0 * 15 / 16 * 64 * shape.hidden * 2.0;
    EXPECT_NEAR(with - without, 2.0 * shape.layers * bytes / link, 1e-12) << device;
  };
  transfer("h800", 50e9);
  transfer("ascend_910c", 392e9);
  EXPECT_EQ(find_device("h800")->peers, 8);
  EXPECT_EQ(find_device("ascend_910c")->peers, 384);
}

}  // namespace
}  // namespace rondo::sim
