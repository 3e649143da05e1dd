#include "config/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "config/dump.h"
#include "config/example_config.h"

namespace rondo::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

Result<ExampleConfig> from_text(std::string_view text) {
  ExampleConfig config;
  RONDO_TRY(load_text(FieldList(config), text, "run.toml"));
  return config;
}

Result<ExampleConfig> from_overrides(const std::vector<std::string>& overrides) {
  ExampleConfig config;
  RONDO_TRY(apply_overrides(FieldList(config), overrides));
  return config;
}

std::string message(const Result<ExampleConfig>& result) {
  return result ? "accepted" : result.error().message();
}

TEST(LoadTest, SetsWhatTheFileNamesAndLeavesTheRest) {
  const auto config = from_text(R"(
seed = 0x10
name = "größer"
betas = [0, 0.5]
eval.temperature = 0
[rollout]
kv_memory = "512MiB"
[rollout.sampling]
stop = ["</s>", "a,b"]
)");
  ASSERT_TRUE(config) << message(config);
  EXPECT_EQ(config->seed, 16u);
  EXPECT_EQ(config->name, "größer");
  EXPECT_THAT(config->betas, ElementsAre(0.0, 0.5));
  EXPECT_EQ(config->eval.temperature, 0.0);
  EXPECT_EQ(config->rollout.kv_memory.bytes, 512 * kMiB);
  EXPECT_THAT(config->rollout.sampling.stop, ElementsAre("</s>", "a,b"));
  EXPECT_EQ(config->rollout.n, 8);
}

TEST(LoadTest, UnknownKeyNamesLineAndNearest) {
  EXPECT_EQ(message(from_text("seed = 1\n\n[rollout]\nm = 4\n")),
            "run.toml:4: unknown key 'rollout.m'; did you mean 'rollout.n'?");
  EXPECT_EQ(message(from_text("[rolout]\nn = 4\n")),
            "run.toml:2: unknown key 'rolout.n'; did you mean 'rollout.n'?");
  EXPECT_EQ(message(from_text("[rolout]\n")),
            "run.toml:1: unknown section 'rolout'; did you mean 'rollout'?");
  EXPECT_EQ(message(from_text("\"rollout.n\" = 3\n")),
            "run.toml:1: unknown key '\"rollout.n\"'; did you mean 'rollout.n'?");
}

TEST(LoadTest, KeyInTheWrongSectionGetsItsNamesake) {
  EXPECT_EQ(message(from_overrides({"kv_memory=2GiB"})),
            "override 'kv_memory=2GiB': unknown key 'kv_memory'; did you mean 'rollout.kv_memory'?");
  EXPECT_EQ(message(from_overrides({"actor.rollout.n=2"})),
            "override 'actor.rollout.n=2': unknown key 'actor.rollout.n'; did you mean 'rollout.n'?");
}

TEST(LoadTest, ReportsTheFirstFaultyLine) {
  EXPECT_THAT(message(from_text("name = 3\nbetas = 1\n")), StartsWith("run.toml:1: name must be"));
  EXPECT_THAT(message(from_text("[rollout]\nn = 0\n[eval]\nx = 1")),
              StartsWith("run.toml:2: rollout.n must be"));
}

TEST(LoadTest, SectionsAndFieldsDoNotStandForEachOther) {
  EXPECT_EQ(message(from_text("rollout = 3")),
            "run.toml:1: 'rollout' is a section, not a field; set its fields, e.g. 'rollout.n'");
  EXPECT_EQ(message(from_text("[seed]\nx = 1")),
            "run.toml:2: unknown key 'seed.x': 'seed' is a field (integer), not a section");
  EXPECT_EQ(message(from_text("[seed]\n")), "run.toml:1: seed must be an integer, given a section");
  EXPECT_THAT(message(from_overrides({"rollout=3"})), HasSubstr("is a section"));
}

TEST(LoadTest, SyntaxErrorsNameTheLine) {
  EXPECT_THAT(message(from_text("seed = 1\nname = \"open\n")), StartsWith("run.toml:2: not valid TOML"));
  EXPECT_THAT(message(from_text("seed = 1\nseed = 2\n")), StartsWith("run.toml:2: not valid TOML"));
  EXPECT_THAT(message(from_text("name = \"\xff\"")), StartsWith("run.toml:1: not valid TOML"));
}

TEST(LoadTest, RefusesDocumentsThatWouldExhaustTheStack) {
  std::string key = "a";
  for (int i = 0; i < 400'000; ++i) key += ".a";
  EXPECT_THAT(message(from_text(key + " = 1")), HasSubstr("points"));
  EXPECT_THAT(message(from_text(key.substr(0, 19'999) + " = 1")), HasSubstr("nested over 64 deep"));
  EXPECT_THAT(message(from_text("x = " + std::string(100'000, '['))), HasSubstr("not valid TOML"));
  EXPECT_THAT(message(from_text(std::string((1 << 20) + 1, ' '))), HasSubstr("over 1 MiB"));
}

TEST(LoadTest, AnErrorLeavesTheConfigUnchanged) {
  ExampleConfig config;
  const FieldList fields(config);
  const std::string before = to_toml(fields);
  EXPECT_FALSE(load_text(fields, "seed = 9\nname = 3", "run.toml"));
  EXPECT_FALSE(apply_overrides(fields, std::vector<std::string>{"seed=9", "nmae=x"}));
  EXPECT_EQ(to_toml(fields), before);
}

TEST(LoadTest, KnownPartOfADocumentOfAnotherVersionIsLoaded) {
  ExampleConfig config;
  const auto left_out = load_known_text(FieldList(config),
                                        "seed = 9\nold = 1\n[rollout]\nn = 0\nchunked = false\n[gone]\n"
                                        "x = 1\n[empty]\n",
                                        "run.toml");
  ASSERT_TRUE(left_out) << left_out.error().message();
  EXPECT_EQ(config.seed, 9u);
  EXPECT_FALSE(config.rollout.chunked);
  EXPECT_EQ(config.rollout.n, 8);
  std::vector<std::string> keys, reasons;
  for (const LeftOut& entry : *left_out) {
    keys.push_back(entry.key);
    reasons.push_back(entry.reason);
  }
  EXPECT_THAT(keys, ElementsAre("old", "rollout.n", "gone.x", "empty"));
  EXPECT_THAT(reasons, ElementsAre(StartsWith("run.toml:2: unknown key 'old'; did you mean"),
                                   "run.toml:4: rollout.n must be an integer >= 1 and <= 1024, given 0",
                                   StartsWith("run.toml:7: unknown key 'gone.x'"),
                                   StartsWith("run.toml:8: unknown section 'empty'")));
  EXPECT_THAT(load_known_text(FieldList(config), "seed = \n", "run.toml").error().message(),
              HasSubstr("not valid TOML"));
}

TEST(LoadTest, OverridesApplyInOrder) {
  const auto config = from_overrides({"seed=2", "rollout.n=4", "seed=3"});
  ASSERT_TRUE(config);
  EXPECT_EQ(config->seed, 3u);
  EXPECT_EQ(config->rollout.n, 4);
}

TEST(LoadTest, OverrideTextNeedsNoQuotes) {
  EXPECT_EQ(from_overrides({"name=123"})->name, "123");
  EXPECT_EQ(from_overrides({"name=a=b # c"})->name, "a=b # c");
  EXPECT_EQ(from_overrides({"name="})->name, "");
  EXPECT_EQ(from_overrides({R"(name="tab\t")"})->name, "tab\t");
  EXPECT_EQ(from_overrides({"name='x'"})->name, "x");
  EXPECT_EQ(from_overrides({"name=two\nlines"})->name, "two\nlines");
  EXPECT_EQ(from_overrides({"rollout.kv_memory=1.5GiB"})->rollout.kv_memory.bytes, 1536 * kMiB);
  EXPECT_EQ(from_overrides({"loss_agg_mode=seq-mean"})->loss_agg_mode, Aggregation::kSequenceMean);
}

TEST(LoadTest, OverrideListsWithAndWithoutBrackets) {
  EXPECT_THAT(from_overrides({"eval.stop=[a, b c]"})->eval.stop, ElementsAre("a", "b c"));
  EXPECT_THAT(from_overrides({"eval.stop=a,1"})->eval.stop, ElementsAre("a", "1"));
  EXPECT_THAT(from_overrides({R"(eval.stop=["a,b",'c'])"})->eval.stop, ElementsAre("a,b", "c"));
  EXPECT_THAT(from_overrides({"eval.stop=[]"})->eval.stop, IsEmpty());
  EXPECT_THAT(from_overrides({"betas=0.1, 0"})->betas, ElementsAre(0.1, 0.0));
  EXPECT_THAT(from_overrides({"betas="})->betas, IsEmpty());
  EXPECT_THAT(message(from_overrides({"eval.stop=[\"a]"})), HasSubstr("cannot be read as list of strings"));
  EXPECT_THAT(message(from_overrides({"betas=a,b"})),
              HasSubstr("betas: the value cannot be read as list of numbers"));
}

TEST(LoadTest, OverrideScalarsInTomlAndPythonSpelling) {
  EXPECT_FALSE(from_overrides({"rollout.chunked=False"})->rollout.chunked);
  EXPECT_FALSE(from_overrides({"rollout.chunked=false"})->rollout.chunked);
  EXPECT_EQ(from_overrides({"eval.temperature=.5"})->eval.temperature, 0.5);
  EXPECT_EQ(from_overrides({"eval.temperature=1e-6"})->eval.temperature, 1e-6);
  EXPECT_EQ(from_overrides({"total_tokens=1_000"})->total_tokens, 1000);
}

TEST(LoadTest, OverrideOfAnotherTypeNamesKeyTypeAndValue) {
  EXPECT_EQ(message(from_overrides({"rollout.n=many"})),
            "override 'rollout.n=many': rollout.n must be an integer >= 1 and <= 1024, given \"many\"");
  EXPECT_THAT(message(from_overrides({"rollout.chunked=1"})), HasSubstr("must be a boolean, given 1"));
  EXPECT_THAT(message(from_overrides({"seed=3 # x"})), HasSubstr("given \"3 # x\""));
  EXPECT_THAT(message(from_overrides({"seed=3\nname='x'"})), HasSubstr("seed must be an integer"));
  EXPECT_THAT(message(from_overrides({"seed"})), HasSubstr("section.key=value"));
  EXPECT_THAT(message(from_overrides({"name=\xff"})), HasSubstr("encoding"));
}

TEST(LoadTest, FileErrorsNameThePath) {
  ExampleConfig config;
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "rondo_load_test.toml";
  ASSERT_TRUE(write_file_durable(path, "sed = 3\n"));
  const auto loaded = load_file(FieldList(config), path);
  EXPECT_EQ(loaded.error().message(), path.string() + ":1: unknown key 'sed'; did you mean 'seed'?");
  std::filesystem::remove(path);
  EXPECT_EQ(load_file(FieldList(config), path).error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace rondo::config
