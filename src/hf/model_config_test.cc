#include "hf/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "hf/test_folder.h"

namespace rondo::hf {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

json minimal() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"vocab_size", 300}};
}

json with(const char* patch) {
  json config = minimal();
  config.merge_patch(json::parse(patch));  // null removes a field
  return config;
}

TEST(ModelConfigTest, ReadsEveryField) {
  const auto config = ModelConfig::parse(with(R"({
    "num_key_value_heads": 2, "head_dim": 24, "rms_norm_eps": 1e-5, "rope_theta": 100000, "max_position_embeddings": 512,
    "tie_word_embeddings": true, "hidden_act": "silu", "attention_bias": false, "mlp_bias": false, "bos_token_id": 7,
    "eos_token_id": [8, 9], "torch_dtype": "bfloat16"})")
                                             .dump());
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(architecture_name(config->architecture), "LlamaForCausalLM");
  EXPECT_EQ(config->hidden_size, 64);
  EXPECT_EQ(config->intermediate_size, 96);
  EXPECT_EQ(config->num_hidden_layers, 2);
  EXPECT_EQ(config->num_attention_heads, 4);
  EXPECT_EQ(config->num_key_value_heads, 2);
  EXPECT_EQ(config->head_dim, 24);
  EXPECT_EQ(config->vocab_size, 300);
  EXPECT_EQ(config->rms_norm_eps, 1e-5);
  EXPECT_EQ(config->rope_theta, 1e5);
  EXPECT_EQ(config->max_position_embeddings, 512);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_EQ(config->hidden_act, "silu");
  EXPECT_THAT(config->bos_token_ids, ElementsAre(7));
  EXPECT_THAT(config->eos_token_ids, ElementsAre(8, 9));
  EXPECT_EQ(config->dtype, DType::kBf16);
}

TEST(ModelConfigTest, AbsentFieldsHaveTheDefaultsOfTransformers) {
  const auto config = ModelConfig::parse(minimal().dump()).value();
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(config.rope_theta, 1e4);
  EXPECT_EQ(config.max_position_embeddings, 2048);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_THAT(config.bos_token_ids, ElementsAre(1));
  EXPECT_THAT(config.eos_token_ids, ElementsAre(2));
  EXPECT_EQ(config.dtype, DType::kFp32);
}

TEST(ModelConfigTest, NullTokenIdsAreNone) {
  std::string text = minimal().dump();
  text.insert(1, R"("eos_token_id": null, "bos_token_id": null, "rope_scaling": null, "head_dim": null,)");
  const auto config = ModelConfig::parse(text).value();
  EXPECT_THAT(config.bos_token_ids, IsEmpty());
  EXPECT_THAT(config.eos_token_ids, IsEmpty());
  EXPECT_EQ(config.head_dim, 16);
}

TEST(ModelConfigTest, ReadsTheRopeLayoutOfTransformers5) {
  const auto config = ModelConfig::parse(
      with(R"({"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}, "dtype": "float16"})").dump());
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->rope_theta, 5e5);
  EXPECT_EQ(config->dtype, DType::kFp16);
}

struct Bad {
  const char* patch;
  Code code;
  const char* message;
};

TEST(ModelConfigTest, RefusalsNameTheFieldAndItsValue) {
  const Code invalid = Code::kInvalidArgument;
  const Code unsupported = Code::kUnsupported;
  const std::vector<Bad> cases = {
      {R"({"architectures": ["GPT2LMHeadModel"]})", unsupported,
       R"(architectures is ["GPT2LMHeadModel"]; supported: LlamaForCausalLM)"},
      {R"({"architectures": null})", invalid, "architectures is missing"},
      {R"({"architectures": []})", invalid, "architectures is []"},
      {R"({"hidden_size": null})", invalid, "the field 'hidden_size' is missing"},
      {R"({"hidden_size": 0})", invalid, "hidden_size is 0; it must be a whole number from 1 to"},
      {R"({"hidden_size": -64})", invalid, "hidden_size is -64"},
      {R"({"hidden_size": 64.5})", invalid, "hidden_size is 64.5"},
      {R"({"hidden_size": "64"})", invalid, "hidden_size is \"64\""},
      {R"({"hidden_size": 1000000000000})", invalid, "hidden_size is 1000000000000"},
      {R"({"hidden_size": 99999999999999999999})", invalid, "hidden_size is"},
      {R"({"hidden_size": 66})", invalid, "hidden_size is 66 and num_attention_heads is 4"},
      {R"({"hidden_size": 60})", unsupported, "head_dim is 15"},
      {R"({"hidden_size": 2, "num_attention_heads": 4, "head_dim": 7})", unsupported, "head_dim is 7"},
      {R"({"num_key_value_heads": 3})", invalid, "num_attention_heads is 4 and num_key_value_heads is 3"},
      {R"({"num_key_value_heads": 8})", invalid, "num_attention_heads is 4 and num_key_value_heads is 8"},
      {R"({"max_position_embeddings": 0})", invalid, "max_position_embeddings is 0"},
      {R"({"rms_norm_eps": 0})", invalid, "rms_norm_eps is 0"},
      {R"({"rms_norm_eps": "1e-5"})", invalid, "rms_norm_eps is \"1e-5\"; it must be a number"},
      {R"({"hidden_act": "gelu"})", unsupported, "hidden_act is \"gelu\"; supported: \"silu\""},
      {R"({"attention_bias": true})", unsupported, "attention_bias is true"},
      {R"({"mlp_bias": true})", unsupported, "mlp_bias is true"},
      {R"({"mlp_bias": 0})", invalid, "mlp_bias is 0; it must be true or false"},
      {R"({"quantization_config": {"bits": 4}})", unsupported, "quantization_config"},
      {R"({"rope_theta": 0})", invalid, "rope_theta is 0"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}})", unsupported,
       R"(rope_scaling.rope_type is "llama3"; supported: "default")"},
      {R"({"rope_scaling": {"type": "linear", "factor": 2}})", unsupported,
       R"(rope_scaling.type is "linear")"},
      {R"({"rope_scaling": {"factor": 2}})", unsupported, "rope_scaling.factor is 2; supported: 1"},
      {R"({"rope_scaling": "linear"})", invalid, "rope_scaling is \"linear\"; it must be an object"},
      {R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}})", unsupported,
       "rope_parameters.rope_type is \"yarn\""},
      {R"({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 1e5}})", invalid,
       "rope_theta is 10000 but rope_parameters.rope_theta is 100000"},
      {R"({"partial_rotary_factor": 0.5})", unsupported, "partial_rotary_factor is 0.5"},
      {R"({"bos_token_id": 300})", invalid,
       "bos_token_id has 300; ids are whole numbers below the vocabulary size 300"},
      {R"({"eos_token_id": [2, -1]})", invalid, "eos_token_id has -1"},
      {R"({"torch_dtype": "float64"})", unsupported,
       "torch_dtype: unknown dtype 'float64'; supported are bfloat16"},
      {R"({"torch_dtype": 16})", invalid, "torch_dtype is 16"},
  };
  for (const Bad& bad : cases) {
    const auto config = ModelConfig::parse(with(bad.patch).dump());
    ASSERT_FALSE(config) << bad.patch;
    EXPECT_EQ(config.error().code(), bad.code) << bad.patch << ": " << config.error().message();
    EXPECT_THAT(config.error().message(), HasSubstr(bad.message)) << bad.patch;
  }
}

TEST(ModelConfigTest, WhatIsNoJsonObjectIsDataLoss) {
  for (const std::string text : {"", "{", "[]", "null", R"({"a": 1, "a": 2})"}) {
    const auto config = ModelConfig::parse(text);
    ASSERT_FALSE(config) << text;
    EXPECT_EQ(config.error().code(), Code::kDataLoss) << text;
  }
}

TEST(ModelConfigTest, WritesBackEverythingButTheDtype) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    json original = with(R"({"some_future_field": {"kept": [1, 2.5]}})");
    original[key] = "bfloat16";
    const json written = json::parse(ModelConfig::parse(original.dump()).value().to_json(DType::kFp16));
    original[key] = "float16";
    EXPECT_EQ(written, original);
  }
  EXPECT_EQ(json::parse(ModelConfig::parse(minimal().dump()).value().to_json(DType::kFp32))["torch_dtype"],
            "float32");
}

TEST(ModelConfigTest, GenerationConfigSaysWhereASequenceEnds) {
  TestFolder folder;
  folder.write("config.json", with(R"({"eos_token_id": 2})").dump());
  EXPECT_THAT(ModelConfig::read(folder.path()).value().eos_token_ids, ElementsAre(2));
  folder.write("generation_config.json", R"({"eos_token_id": [2, 5]})");
  EXPECT_THAT(ModelConfig::read(folder.path()).value().eos_token_ids, ElementsAre(2, 5));
  folder.write("generation_config.json", R"({"temperature": 0.6})");
  EXPECT_THAT(ModelConfig::read(folder.path()).value().eos_token_ids, ElementsAre(2));
  folder.write("generation_config.json", R"({"eos_token_id": 1000})");
  EXPECT_THAT(ModelConfig::read(folder.path()).error().message(),
              HasSubstr("generation_config.json: eos_token_id has 1000"));
}

TEST(ModelConfigTest, AMissingFileIsNotFound) {
  TestFolder folder;
  const auto config = ModelConfig::read(folder.path());
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code(), Code::kNotFound);
  EXPECT_THAT(config.error().message(), HasSubstr("config.json"));
}

}  // namespace
}  // namespace rondo::hf
