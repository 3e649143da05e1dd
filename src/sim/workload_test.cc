#include "sim/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "sim/comparison.h"
#include "sim/report.h"

namespace rondo::sim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<std::string> kSmall = {
    "model.preset=smollm2-135m", "lengths.groups=12",       "lengths.group_size=4", "lengths.mean=300",
    "lengths.max=2048",          "lengths.correlation=0.8", "cluster.instances=2",  "engine.kv_tokens=8192"};

Workload small(std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(), kSmall.begin(), kSmall.end());
  auto workload = load_workload("", overrides);
  EXPECT_TRUE(workload) << workload.error().message();
  return *std::move(workload);
}

std::string error_of(const std::vector<std::string>& overrides) {
  std::vector<std::string> all = kSmall;
  all.insert(all.end(), overrides.begin(), overrides.end());
  const auto workload = load_workload("", all);
  if (!workload) return workload.error().message();
  const auto variants = variants_of(*workload);
  if (!variants) return variants.error().message();
  const auto outcomes = compare(*variants, {});
  return outcomes ? "no error" : outcomes.error().message();
}

TEST(Workload, BadInputNamesTheSettingAndWhatItMayBe) {
  EXPECT_THAT(error_of({"cluster.instances=0"}), AllOf(HasSubstr("cluster.instances"), HasSubstr(">= 1")));
  EXPECT_THAT(error_of({"device.preset=h801"}), AllOf(HasSubstr("device.preset"), HasSubstr("'h800'")));
  EXPECT_THAT(error_of({"model.preset=kimi"}), AllOf(HasSubstr("model.preset"), HasSubstr("'kimi-k2'")));
  EXPECT_THAT(error_of({"schedule.policy=seet"}), HasSubstr("seer"));
  EXPECT_THAT(error_of({"compare.variants=a: seet"}), HasSubstr("nearest is 'seer'"));
  EXPECT_THAT(error_of({"compare.variants=a: seer clutser.instances=2"}), HasSubstr("cluster.instances"));
  EXPECT_THAT(error_of({"engine.kv_tokens=1024"}), HasSubstr("the largest instance has 16"));
  EXPECT_THAT(error_of({"lengths.mean=5000"}), AllOf(HasSubstr("lengths"), HasSubstr("at most 1799")));
  EXPECT_THAT(error_of({"trace.file=/nowhere.jsonl"}), HasSubstr("trace.file"));
  EXPECT_THAT(error_of({"model.preset=kimi-k2", "engine.kv_tokens=0"}), HasSubstr("engine.devices"));
}

// Each of these once ended in an aborted check, in an endless run or in figures of infinite time.
TEST(Workload, AbsurdFiguresAreRefusedByName) {
  EXPECT_THAT(error_of({"device.preset=cpu", "device.tflops=100"}),
              HasSubstr("device: tflops has no effect"));
  EXPECT_THAT(error_of({"device.preset=cpu"}), HasSubstr("engine.step_cost_file"));
  EXPECT_THAT(error_of({"device.tflops=1e-300"}), HasSubstr("device: tflops is 1e-300"));
  EXPECT_THAT(error_of({"device.rdma_gb_s=1e300"}), HasSubstr("device: rdma_gb_s is 1e+300"));
  EXPECT_THAT(error_of({"model.kv_value_bytes=1e-300"}), HasSubstr("model: kv_value_bytes is 1e-300"));
  for (const char* key : {"engine.step_overhead_ms", "engine.sequence_overhead_us",
                          "engine.collective_latency_us", "engine.imbalance", "engine.spec_step_overhead_ms",
                          "engine.spec_sequence_overhead_us", "cluster.chunk_overhead_ms"}) {
    EXPECT_THAT(error_of({std::string(key) + "=1e12"}), AllOf(HasSubstr(key), HasSubstr("<= ")));
  }
  EXPECT_THAT(error_of({"engine.flops_efficiency=1e-30"}), HasSubstr("engine.flops_efficiency"));
}

TEST(Workload, WhatTheUserSetsHoldsForEveryVariantOrIsRefused) {
  const std::string variants = "compare.variants=a: seer,b: fifo+spec";
  EXPECT_THAT(error_of({variants, "schedule.policy=fifo"}),
              AllOf(HasSubstr("schedule.policy=fifo"), HasSubstr("compare.variants=fifo")));
  EXPECT_THAT(error_of({"compare.variants=a: seer schedule.policy=fifo"}), HasSubstr("behind its label"));
  EXPECT_THAT(error_of({"compare.variants=a: seer+spec speculation.enabled=false"}), HasSubstr("+spec"));
  const auto all = variants_of(small({variants, "speculation.enabled=true"}));
  ASSERT_TRUE(all);
  EXPECT_TRUE((*all)[0].workload.speculation.enabled);
  EXPECT_FALSE((*variants_of(small({variants})))[0].workload.speculation.enabled);
}

TEST(Workload, VariantsHaveLabelsPoliciesAndSettingsOfTheirOwn) {
  const auto variants =
      variants_of(small({"compare.variants=base: fifo,spec: seer+spec schedule.chunk_tokens=128"}));
  ASSERT_TRUE(variants);
  ASSERT_EQ(variants->size(), 2U);
  EXPECT_EQ((*variants)[0].label, "base");
  EXPECT_EQ((*variants)[0].workload.schedule.policy, rollout::Policy::kFifo);
  EXPECT_EQ((*variants)[0].workload.schedule.chunk_tokens, 0);
  EXPECT_EQ((*variants)[1].workload.schedule.chunk_tokens, 128);
  EXPECT_TRUE((*variants)[1].workload.speculation.enabled);
}

TEST(Comparison, OutcomesDoNotDependOnTheNumberOfThreads) {
  const auto variants = variants_of(small({"compare.variants=seer+spec,seer_plus,group_round_robin"}));
  ASSERT_TRUE(variants) << variants.error().message();
  const auto one = compare(*variants, {.num_seeds = 3});
  const auto four = compare(*variants, {.num_seeds = 3, .num_threads = 4});
  ASSERT_TRUE(one && four);
  for (std::size_t v = 0; v < one->size(); ++v) {
    for (std::size_t s = 0; s < 3; ++s) {
      EXPECT_EQ((*one)[v].outcomes[s].event_hash, (*four)[v].outcomes[s].event_hash);
      EXPECT_EQ((*one)[v].outcomes[s].seed, 1 + s);
    }
  }
}

// Two prompts of three equal responses each: what siblings have finished drafts the rest of them whole.
TEST(Comparison, ATracesTokensDecideHowDraftsFare) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "sim_trace.jsonl";
  std::ofstream file(path);
  for (int row = 0; row < 6; ++row) {
    file << R"({"prompt_id": )" << row / 3 << R"(, "response_tokens": [)";
    for (int t = 0; t < 600; ++t) file << (t > 0 ? ", " : "") << (row / 3) * 1000 + t;
    file << "]}\n";
  }
  file.close();
  // One runs at a time, so that siblings finish before others start.
  const auto accept_length = [&](const std::string& measure) {
    const auto variants = variants_of(small({"trace.file=" + path.string(), measure, "cluster.max_running=1",
                                             "compare.variants=fifo+spec", "cluster.instances=1"}));
    const auto outcomes = compare(*variants, {});
    EXPECT_TRUE(outcomes) << outcomes.error().message();
    EXPECT_EQ(outcomes->front().outcomes.front().tokens, 3600);
    return outcomes->front().outcomes.front().accept_length;
  };
  EXPECT_GT(accept_length("trace.measure_drafts=true"), accept_length("trace.measure_drafts=false") + 0.2);
}

TEST(Comparison, SeedsThatWouldAllBeAlikeAreRefused) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "sim_lengths.jsonl";
  std::ofstream(path) << R"({"prompt_id": 0, "length": 50})" << '\n' << R"({"prompt_id": 1, "length": 70})";
  const std::string trace = "trace.file=" + path.string();
  const auto seeds_of = [&](const std::string& policies) {
    return compare(*variants_of(small({trace, "compare.variants=" + policies})), {.num_seeds = 2});
  };
  const auto plain = seeds_of("fifo,seer_plus");
  ASSERT_FALSE(plain);
  EXPECT_THAT(plain.error().message(), HasSubstr("--seeds 2"));
  const auto drafted = seeds_of("fifo+spec");  // acceptance is drawn
  ASSERT_TRUE(drafted) << drafted.error().message();
  EXPECT_EQ(drafted->front().outcomes[1].tokens, 120);
}

TEST(Comparison, TimelinesCoverTheRolloutOfEachVariant) {
  const auto variants = variants_of(small({"compare.variants=a: seer,b: group_round_robin"}));
  const auto all = compare(*variants, {.num_seeds = 2, .num_threads = 2, .records_first = true});
  ASSERT_TRUE(all);
  const auto plain = compare(*variants, {.num_seeds = 2});
  ASSERT_EQ(all->size(), 2U);
  for (std::size_t v = 0; v < 2; ++v) {
    ASSERT_TRUE((*all)[v].timeline.has_value());
    const timeline::Timeline& timeline = *(*all)[v].timeline;
    EXPECT_EQ(timeline.name, v == 0 ? "a" : "b");
    EXPECT_EQ(timeline.finishes.size(), 48U);
    EXPECT_EQ(timeline.end_ns, timeline.finishes.back().time_ns);
    EXPECT_FALSE((*plain)[v].timeline.has_value());
    EXPECT_EQ((*all)[v].outcomes[0].event_hash, (*plain)[v].outcomes[0].event_hash);
  }
}

TEST(Report, TablesHaveARowPerVariantAndJsonAnObjectPerSeed) {
  const auto variants = variants_of(small({"compare.variants=seer,fifo", "compare.published_speedup=1,1.5"}));
  const auto outcomes = compare(*variants, {.num_seeds = 2});
  ASSERT_TRUE(outcomes);
  const CompareConfig& published = variants->front().workload.compare;
  EXPECT_THAT(comparison_table(published, *outcomes), AllOf(HasSubstr("fifo"), HasSubstr("1.50")));
  const std::string json = outcomes_json(*outcomes, "a=1");
  EXPECT_EQ(std::count(json.begin(), json.end(), '\n'), 4);
  EXPECT_THAT(json, AllOf(HasSubstr("\"event_hash\""), HasSubstr("\"setting\":\"a=1\"")));
}

TEST(Report, ARatioToNothingIsADash) {
  const auto outcome = [](double tail_s) {
    return Outcome{.total_s = 10.0, .tail_s = tail_s, .tokens = 100};
  };
  const std::vector<VariantOutcomes> all = {{.label = "base", .outcomes = {outcome(0.0), outcome(2.0)}},
                                            {.label = "other", .outcomes = {outcome(4.0), outcome(1.0)}}};
  EXPECT_FALSE(ratio_of(all[1], all[0], tail_of));
  EXPECT_NEAR(ratio_of(all[0], all[1], tail_of)->mean, 1.0, 1e-12);  // of 0 and 2
  EXPECT_EQ(ratio_of(all[0], all[1], tail_of)->most, 2.0);
  const std::string table = comparison_table({}, all);
  EXPECT_THAT(table,
              AllOf(HasSubstr("  -  "), ::testing::Not(HasSubstr("inf")), ::testing::Not(HasSubstr("nan"))));
}

}  // namespace
}  // namespace rondo::sim
