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
  const auto outcomes = compare(*variants, 1, 1);
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
  EXPECT_THAT(error_of({"lengths.mean=5000"}), AllOf(HasSubstr("lengths"), HasSubstr("at most 2027")));
  EXPECT_THAT(error_of({"trace.file=/nowhere.jsonl"}), HasSubstr("trace.file"));
  EXPECT_THAT(error_of({"model.preset=kimi-k2", "engine.kv_tokens=0"}), HasSubstr("engine.devices"));
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
  const auto one = compare(*variants, 3, 1);
  const auto four = compare(*variants, 3, 4);
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
    const auto outcomes = compare(*variants, 1, 1);
    EXPECT_TRUE(outcomes) << outcomes.error().message();
    EXPECT_EQ(outcomes->front().outcomes.front().tokens, 3600);
    return outcomes->front().outcomes.front().accept_length;
  };
  EXPECT_GT(accept_length("trace.measure_drafts=true"), accept_length("trace.measure_drafts=false") + 0.2);
}

TEST(Comparison, TimelinesCoverTheRolloutOfEachVariant) {
  const auto variants = variants_of(small({"compare.variants=a: seer,b: group_round_robin"}));
  const auto timelines = record_timelines(*variants);
  ASSERT_TRUE(timelines);
  ASSERT_EQ(timelines->size(), 2U);
  EXPECT_EQ((*timelines)[1].name, "b");
  for (const timeline::Timeline& timeline : *timelines) {
    EXPECT_EQ(timeline.finishes.size(), 48U);
    EXPECT_EQ(timeline.end_ns, timeline.finishes.back().time_ns);
  }
}

TEST(Report, TablesHaveARowPerVariantAndJsonAnObjectPerSeed) {
  const auto variants = variants_of(small({"compare.variants=seer,fifo", "compare.published_speedup=1,1.5"}));
  const auto outcomes = compare(*variants, 2, 1);
  ASSERT_TRUE(outcomes);
  const CompareConfig& published = variants->front().workload.compare;
  EXPECT_THAT(comparison_table(published, *outcomes), AllOf(HasSubstr("fifo"), HasSubstr("1.50")));
  const std::string json = outcomes_json(*outcomes, "a=1");
  EXPECT_EQ(std::count(json.begin(), json.end(), '\n'), 4);
  EXPECT_THAT(json, AllOf(HasSubstr("\"event_hash\""), HasSubstr("\"setting\":\"a=1\"")));
}

}  // namespace
}  // namespace rondo::sim
