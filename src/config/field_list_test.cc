#include "config/field_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "config/example_config.h"

namespace rondo::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(const FieldList& fields, const char* key, const Value& value) {
  const auto checked = fields.find(key)->check(value);
  return checked ? "accepted" : checked.error().message();
}

TEST(FieldListTest, ListsFullKeysSectionBySection) {
  ExampleConfig config;
  const FieldList fields(config);
  EXPECT_THAT(
      fields.keys(),
      ElementsAre("seed", "total_tokens", "name", "loss_agg_mode", "betas", "rollout.n", "rollout.chunked",
                  "rollout.kv_memory", "rollout.sampling.temperature", "rollout.sampling.top_p",
                  "rollout.sampling.stop", "eval.temperature", "eval.top_p", "eval.stop"));
}

TEST(FieldListTest, AssignWritesThroughToTheStruct) {
  ExampleConfig config;
  const FieldList fields(config);
  fields.find("seed")->assign(std::int64_t{7});
  fields.find("rollout.sampling.top_p")->assign(0.5);
  fields.find("rollout.kv_memory")->assign(std::string("2MiB"));
  fields.find("loss_agg_mode")->assign(std::string("seq-mean"));
  fields.find("betas")->assign(std::vector<double>{0.5});
  fields.find("eval.temperature")->assign(std::int64_t{2});
  EXPECT_EQ(config.seed, 7u);
  EXPECT_EQ(config.rollout.sampling.top_p, 0.5f);
  EXPECT_EQ(config.rollout.kv_memory.bytes, 2 * kMiB);
  EXPECT_EQ(config.loss_agg_mode, Aggregation::kSequenceMean);
  EXPECT_EQ(config.betas, std::vector<double>{0.5});
  EXPECT_EQ(config.eval.temperature, 2.0);
}

TEST(FieldListTest, RefusesAnotherTypeNamingKeyTypeAndValue) {
  ExampleConfig config;
  const FieldList fields(config);
  EXPECT_EQ(refusal(fields, "rollout.n", 1.5), "rollout.n must be an integer >= 1 and <= 1024, given 1.5");
  EXPECT_EQ(refusal(fields, "rollout.chunked", std::int64_t{1}),
            "rollout.chunked must be a boolean, given 1");
  EXPECT_EQ(refusal(fields, "name", true), "name must be a string, given true");
  EXPECT_EQ(refusal(fields, "eval.stop", std::string("x")),
            "eval.stop must be a list of strings, given \"x\"");
  EXPECT_EQ(refusal(fields, "betas", std::vector<std::string>{"a"}),
            "betas must be a list of numbers >= 0 and < 1, given [\"a\"]");
  EXPECT_EQ(refusal(fields, "seed", Opaque{"a date or time"}),
            "seed must be an integer, given a date or time");
}

TEST(FieldListTest, RefusesNumbersOutsideTheRangeOrTheVariable) {
  ExampleConfig config;
  const FieldList fields(config);
  EXPECT_EQ(refusal(fields, "rollout.n", std::int64_t{0}),
            "rollout.n must be an integer >= 1 and <= 1024, given 0");
  EXPECT_EQ(refusal(fields, "rollout.n", std::int64_t{1024}), "accepted");
  EXPECT_EQ(refusal(fields, "eval.top_p", 0.0), "eval.top_p must be a number > 0 and <= 1, given 0.0");
  EXPECT_EQ(refusal(fields, "betas", std::vector<double>{0.5, 1.0}),
            "betas must be a list of numbers >= 0 and < 1, given [0.5, 1.0]");
  EXPECT_THAT(refusal(fields, "rollout.n", std::int64_t{1} << 40), HasSubstr("of 32 bits"));
  EXPECT_THAT(refusal(fields, "seed", std::int64_t{-1}), HasSubstr("from 0 to 4294967295"));
  EXPECT_THAT(refusal(fields, "eval.top_p", 1e300), HasSubstr("of single precision"));
  EXPECT_EQ(refusal(fields, "rollout.kv_memory", std::string("1KiB")),
            "rollout.kv_memory must be a byte size >= 1048576 bytes, given \"1KiB\"");
}

TEST(FieldListTest, RefusesNumbersThatAreNotFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  ExampleConfig config;
  const FieldList fields(config);
  EXPECT_EQ(refusal(fields, "eval.temperature", kInfinity),
            "eval.temperature must be a finite number >= 0, given inf");
  EXPECT_EQ(refusal(fields, "eval.temperature", kNan),
            "eval.temperature must be a finite number >= 0, given nan");
  EXPECT_EQ(refusal(fields, "eval.top_p", -kInfinity),
            "eval.top_p must be a finite number > 0 and <= 1, given -inf");
  EXPECT_EQ(refusal(fields, "betas", std::vector<double>{0.5, kNan}),
            "betas must be a list of finite numbers >= 0 and < 1, given [0.5, nan]");
  EXPECT_EQ(refusal(fields, "rollout.n", kInfinity),
            "rollout.n must be an integer >= 1 and <= 1024, given inf");
}

TEST(FieldListTest, UnknownEnumNameGetsTheNearest) {
  ExampleConfig config;
  EXPECT_EQ(refusal(FieldList(config), "loss_agg_mode", std::string("token_mean")),
            "loss_agg_mode must be one of \"token-mean\" | \"seq-mean\", given \"token_mean\"; did you mean "
            "\"token-mean\"?");
}

TEST(FieldListTest, ValidateCallsTheStructsOwnAndNamesTheSection) {
  ExampleConfig config;
  const FieldList fields(config);
  EXPECT_TRUE(fields.validate());
  config.rollout.n = 1;
  EXPECT_EQ(fields.validate().error().message(), "rollout: n = 1 needs chunked = false");
}

struct DuplicateKey {
  int a = 0;
  int b = 0;
  template <class V>
  void visit(V& v) {
    v.field("a", a, "");
    v.field("a", b, "");
  }
};

TEST(FieldListTest, DuplicateKeyIsABug) {
  DuplicateKey config;
  EXPECT_DEATH(FieldList{config}, "find\\(key\\) == nullptr");
}

}  // namespace
}  // namespace rondo::config
