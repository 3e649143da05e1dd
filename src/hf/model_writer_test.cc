#include "hf/model_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "hf/model_weights.h"
#include "hf/test_folder.h"
#include "hf/weights_index.h"

namespace rondo::hf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig tiny_config() {
  return ModelConfig::parse(
             R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8, "intermediate_size": 16,
    "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 10, "torch_dtype": "bfloat16"})")
      .value();
}

// Element i of every tensor is i / 4: exact in all three types up to 512.
Result<void> quarters(const TensorSpec&, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(i) / 4;
  return {};
}

const std::vector<NamedShape> kTensors = {{"b", {4, 8}}, {"a", {16}}, {"scalar", {}}, {"none", {0, 3}}};

TEST(ModelWriterTest, WritesWhatTheReaderReads) {
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    TestFolder folder;
    const auto path = folder.path() / "new" / "model";
    ASSERT_TRUE(write_model_folder(path, tiny_config(), kTensors, quarters, {.dtype = dtype}));
    EXPECT_EQ(ModelConfig::read(path).value().dtype, dtype);
    const auto reader = ModelWeightsReader::open(path).value();
    EXPECT_THAT(reader->names(), ElementsAre("a", "b", "none", "scalar"));
    const TensorView b = reader->find("b").value();
    EXPECT_EQ(b.dtype, dtype);
    EXPECT_THAT(b.shape, ElementsAre(4, 8));
    std::vector<float> values(32);
    widen(b, 0, values);
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(i) / 4);
  }
}

// fp32: b has 128 bytes, a 64, scalar 4.
TEST(ModelWriterTest, CutsShardsAtTheLimit) {
  TestFolder folder;
  const auto write = [&](const char* name, std::uint64_t limit) {
    EXPECT_TRUE(write_model_folder(folder.path() / name, tiny_config(), kTensors, quarters,
                                   {.dtype = DType::kFp32, .max_shard_bytes = limit}));
    return ModelWeightsReader::open(folder.path() / name).value();
  };
  const auto whole = write("whole", 196);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "whole" / kSingleFileName));
  const auto two = write("two", 195);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "two" / "model-00002-of-00002.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "two" / kSingleFileName));
  const auto each = write("each", 1);  // "none" needs no bytes and shares the last file
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "each" / "model-00003-of-00003.safetensors"));
  for (const auto* reader : {two.get(), each.get()}) {
    EXPECT_EQ(reader->names(), whole->names());
    EXPECT_EQ(reader->total_bytes(), 196u);
    for (const std::string& name : whole->names()) {
      const TensorView expected = whole->find(name).value();
      const TensorView found = reader->find(name).value();
      EXPECT_TRUE(
          std::equal(found.bytes.begin(), found.bytes.end(), expected.bytes.begin(), expected.bytes.end()));
    }
  }
}

TEST(ModelWriterTest, CopiesTheFilesThatGoWithTheModel) {
  TestFolder source;
  TestFolder target;
  source.write("tokenizer.json", "{\"t\": 1}");
  source.write("generation_config.json", "{}");
  source.write("config.json", "not copied");
  source.write("optimizer.bin", "not copied");
  const auto path = target.path() / "m";
  ASSERT_TRUE(write_model_folder(path, tiny_config(), kTensors, quarters, {.source_folder = source.path()}));
  EXPECT_EQ(read_file(path / "tokenizer.json").value(), "{\"t\": 1}");
  EXPECT_TRUE(std::filesystem::exists(path / "generation_config.json"));
  EXPECT_FALSE(std::filesystem::exists(path / "optimizer.bin"));
  EXPECT_TRUE(ModelConfig::read(path));
}

TEST(ModelWriterTest, DoesNotMixTwoModels) {
  TestFolder folder;
  ASSERT_TRUE(write_model_folder(folder.path() / "m", tiny_config(), kTensors, quarters, {}));
  const auto again = write_model_folder(folder.path() / "m", tiny_config(), kTensors, quarters, {});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(again.error().message(), HasSubstr("holds a model already"));
}

TEST(ModelWriterTest, AnOverflowNamesTheTensor) {
  TestFolder folder;
  const auto fill = [](const TensorSpec& tensor, std::span<float> out) -> Result<void> {
    std::fill(out.begin(), out.end(), tensor.name == "a" ? 70000.0f : 1.0f);
    return {};
  };
  const auto written =
      write_model_folder(folder.path() / "m", tiny_config(), kTensors, fill, {.dtype = DType::kFp16});
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message(),
              HasSubstr("tensor 'a': element 0 is 70000, beyond the range of fp16"));
}

TEST(ModelWriterTest, RefusesDuplicateNamesAcrossShards) {
  TestFolder folder;
  const std::vector<NamedShape> twice = {{"w", {4}}, {"w", {4}}};
  const auto written =
      write_model_folder(folder.path() / "m", tiny_config(), twice, quarters, {.max_shard_bytes = 1});
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message(), HasSubstr("two tensors have the name 'w'"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "m"));
}

TEST(ModelWriterTest, AFullDiskSaysSo) {
  const std::vector<TensorSpec> tensors = {{"w", DType::kFp32, {4}}};
  const auto written = write_safetensors("/dev/full", tensors, quarters);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace rondo::hf
