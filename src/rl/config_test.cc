#include "rl/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "config/field_list.h"
#include "rl/tiny_run.h"

namespace rondo::rl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The message of load_config with a model path and these overrides; empty if there is none.
std::string load_error(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), "model.path=m");
  const auto config = load_config("", overrides);
  return config ? "" : config.error().message();
}

// The same of validate_for_training, with a file of prompts.
std::string training_error(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), {"model.path=m", "data.train_files=t.jsonl"});
  const auto config = load_config("", overrides);
  EXPECT_TRUE(config) << config.error().message();
  const auto valid = config->validate_for_training();
  return valid ? "" : valid.error().message();
}

TEST(ConfigTest, DefaultsNeedAModelAndPromptsAlone) {
  const auto config = load_config("", {});
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(config.error().message(), HasSubstr("model.path is not set"));
  EXPECT_EQ(load_error({}), "");
  EXPECT_EQ(training_error({}), "");
}

TEST(ConfigTest, MistypedKeyNamesTheNearest) {
  EXPECT_THAT(load_error({"actor.optim.lrr=1"}), HasSubstr("actor.optim.lr"));
  EXPECT_THAT(load_error({"rollout.temprature=1"}), HasSubstr("rollout.temperature"));
  EXPECT_THAT(load_error({"trainer.save_frequency=1"}), HasSubstr("trainer.save_freq"));
  EXPECT_THAT(load_error({"reward.function=exactmatch"}), HasSubstr("exact_match"));
  EXPECT_THAT(load_error({"rollout.length_quantile=5"}),
              HasSubstr("unknown key 'rollout.length_quantile'; did you mean 'rollout.length_misses'?"));
}

TEST(ConfigTest, SectionsValidateThemselves) {
  EXPECT_THAT(load_error({"engine.batch.max_running=8", "engine.batch.max_batch_tokens=4"}),
              HasSubstr("engine.batch"));
  EXPECT_THAT(load_error({"reward.format_score=1"}), HasSubstr("format_score"));
  EXPECT_THAT(load_error({"data.train_batch_size=0"}), HasSubstr("data.train_batch_size"));
  EXPECT_THAT(load_error({"rollout.top_p=0"}), HasSubstr("rollout.top_p"));
  EXPECT_THAT(load_error({"rollout.length_misses=0"}),
              HasSubstr("rollout.length_misses must be a number > 0"));
}

TEST(ConfigTest, MiniBatchDividesTheBatch) {
  EXPECT_THAT(load_error({"data.train_batch_size=8", "actor.mini_batch_size=3"}),
              HasSubstr("actor.mini_batch_size = 3 does not divide data.train_batch_size = 8"));
  EXPECT_THAT(load_error({"data.train_batch_size=8", "actor.mini_batch_size=16"}),
              HasSubstr("does not divide"));
  EXPECT_EQ(load_error({"data.train_batch_size=8", "actor.mini_batch_size=4"}), "");
  Config config;
  config.data.train_batch_size = 8;
  EXPECT_EQ(config.mini_batch(), 8);
  config.actor.mini_batch_size = 2;
  EXPECT_EQ(config.mini_batch(), 2);
}

TEST(ConfigTest, RefusesWhatCanOnlyBeASlip) {
  EXPECT_THAT(load_error({"trainer.run_dir="}), HasSubstr("trainer.run_dir is empty"));
  EXPECT_THAT(load_error({R"(rollout.stop=["a", ""])"}), HasSubstr("rollout.stop has an empty string"));
  EXPECT_EQ(load_error({R"(rollout.stop=["a", " "])"}), "");
  // What does not fit into memory would end the process without a word.
  EXPECT_THAT(load_error({"rollout.n=100000000"}), HasSubstr("8 x 100000000 responses"));
  EXPECT_THAT(load_error({"data.train_batch_size=1000000000"}), HasSubstr("1000000000 x 8 responses"));
  EXPECT_THAT(load_error({"rollout.val.n=100000000"}), HasSubstr("rollout.val.n"));
  EXPECT_EQ(load_error({"data.train_batch_size=65536", "rollout.n=256"}), "");
}

TEST(ConfigTest, EveryNumberIsFinite) {
  Config config;
  const config::FieldList fields(config);
  int numbers = 0;
  for (const std::string& key : fields.keys()) {
    if (fields.find(key)->shape() != config::Shape::kNumber) continue;
    ++numbers;
    for (const char* value : {"inf", "-inf", "nan", "infinity"})
      EXPECT_THAT(load_error({key + "=" + value}), HasSubstr(key + " must be a finite number"));
  }
  EXPECT_GT(numbers, 20);
  const TinyRun tiny;
  const auto other_type = load_config(tiny.write("run.toml", "[reward]\nfunction = inf\n"), {});
  ASSERT_FALSE(other_type);
  EXPECT_THAT(other_type.error().message(), HasSubstr("\"last_number\" | \"exact_match\", given inf"));
}

TEST(ConfigTest, TrainingRefusesWhatItCannotTrainOn) {
  EXPECT_THAT(training_error({"data.train_files=[]"}), HasSubstr("data.train_files is empty"));
  EXPECT_THAT(training_error({"rollout.temperature=0"}), HasSubstr("temperature above 0"));
  for (const char* cut : {"rollout.top_p=0.9", "rollout.top_k=5", "rollout.min_p=0.1"})
    EXPECT_THAT(training_error({cut}), HasSubstr("rollout.top_p = 1")) << cut;
  EXPECT_EQ(training_error({"rollout.top_k=-1", "rollout.val.top_k=5", "rollout.val.top_p=0.9"}), "");
}

TEST(ConfigTest, WrittenTreeLoadsBackToTheSame) {
  const TinyRun tiny;
  const Config config =
      tiny.config("run", {"rollout.stop=[\"a\\n\",\"b\"]", "engine.kv_memory=3MiB", "actor.optim.lr=3e-7",
                          "model.dtype=bf16", "data.overlong_prompts=error", "actor.kl_loss_coef=0.001"});
  for (const std::string& text : {config_toml(config), annotated_config_toml(config)}) {
    const auto read = load_config(tiny.write("written.toml", text), {});
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(config_toml(*read), config_toml(config));
    EXPECT_THAT(changed_results(config, *read), IsEmpty());
  }
}

TEST(ConfigTest, OverridesComeAfterTheFile) {
  const TinyRun tiny;
  const std::string file = tiny.write("run.toml", "[model]\npath = \"m\"\n[rollout]\nn = 3\ntop_k = 4\n");
  const auto config = load_config(file, {"rollout.n=5"});
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->rollout.sampling.n, 5);
  EXPECT_EQ(config->rollout.sampling.params.top_k, 4);
}

TEST(ConfigTest, ChangedResultsLeavesOutWhatChangesSpeedAlone) {
  const TinyRun tiny;
  const Config before = tiny.config("run");
  EXPECT_THAT(changed_results(before, tiny.config("other", {"trainer.threads=7", "engine.kv_memory=9MiB",
                                                            "train.activation_memory=1GiB"})),
              IsEmpty());
  EXPECT_THAT(changed_results(before, tiny.config("run", {"trainer.seed=7", "rollout.n=5"})),
              ElementsAre(HasSubstr("rollout.n: 4 -> 5"), HasSubstr("trainer.seed: 1 -> 7")));
}

TEST(ConfigTest, ChangesSinceAnEarlierFileNameWhatCannotBeCompared) {
  const TinyRun tiny;
  const Config config = tiny.config("run");
  const auto since = [&](const std::string& text) {
    return changes_since(tiny.write("earlier.toml", text), config);
  };
  const auto same = since(config_toml(config));
  ASSERT_TRUE(same) << same.error().message();
  EXPECT_THAT(same->results, IsEmpty());
  EXPECT_THAT(same->incomparable, IsEmpty());
  const auto other = since(config_toml(config) + "[gone]\nx = 1\n");
  ASSERT_TRUE(other) << other.error().message();
  EXPECT_THAT(other->results, IsEmpty());
  EXPECT_THAT(other->incomparable, ElementsAre(HasSubstr("unknown key 'gone.x'")));
  EXPECT_FALSE(since("["));
  EXPECT_FALSE(changes_since(tiny.folder() / "none.toml", config));
}

TEST(ConfigTest, TheLengthOfTheRunIsAResultWhereTheLearningRateDecays) {
  const TinyRun tiny;
  const std::vector<std::string> longer = {"trainer.total_steps=77", "actor.optim.lr_scheduler_type=cosine"};
  EXPECT_THAT(changed_results(tiny.config("run"), tiny.config("run", {longer[0]})), IsEmpty());
  EXPECT_THAT(changed_results(tiny.config("run", {longer[1]}), tiny.config("run", longer)),
              ElementsAre(HasSubstr("trainer.total_steps")));
}

TEST(ConfigTest, ReferencePageHasEverySection) {
  const std::string page = config_markdown();
  for (const char* key : {"model.dtype", "data.train_files", "rollout.val.n", "engine.batch.max_running",
                          "algorithm.adv_estimator", "actor.optim.lr", "train.unit_tokens", "reward.function",
                          "trainer.resume_mode"})
    EXPECT_THAT(page, HasSubstr(key));
}

}  // namespace
}  // namespace rondo::rl
