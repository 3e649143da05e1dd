#include "model/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <string>
#include <vector>

#include "hf/test_folder.h"
#include "testing/tiny_model.h"

namespace rondo::model {
namespace {

using kernels::DType;
using ::testing::AllOf;
using ::testing::HasSubstr;

hf::ModelConfig config_of(bool tied) {
  const std::string text = fmt::format(
      R"({{"architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
           "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10, "vocab_size": 1100,
           "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 50000, "tie_word_embeddings": {}}})",
      tied);
  return hf::ModelConfig::parse(text).value();
}

std::vector<std::uint32_t> bits(const Model& model) {
  std::vector<std::uint32_t> all;
  for (std::size_t i = 0; i < model.layout().params().size(); ++i) {
    const ParamInfo& info = model.layout().params()[i];
    std::vector<float> values(static_cast<std::size_t>(info.count()));
    model.weights().load(static_cast<ParamIndex>(i), 0, info.rows, values.data());
    for (const float value : values) all.push_back(std::bit_cast<std::uint32_t>(value));
  }
  return all;
}

class LoadTest : public ::testing::Test {
 protected:
  // Writes a folder with these tensors, all elements `value`, and loads it as `dtype`.
  Result<std::unique_ptr<Model>> load_with(const std::vector<hf::NamedShape>& tensors, float value = 0.5F,
                                           DType dtype = DType::kF16, bool tied = false) {
    const hf::ModelConfig config = config_of(tied);
    const hf::FillTensor fill = [&](const hf::TensorSpec&, std::span<float> out) -> Result<void> {
      std::ranges::fill(out, value);
      return {};
    };
    RONDO_TRY(
        hf::write_model_folder(folder_.path() / "model", config, tensors, fill, {.dtype = hf::DType::kFp32}));
    RONDO_ASSIGN(const auto reader, hf::ModelWeightsReader::open(folder_.path() / "model"));
    RONDO_ASSIGN(const ModelSpec spec, make_spec(config, dtype, 0));
    return load_model(*reader, spec);
  }

  static std::vector<hf::NamedShape> good_tensors(bool tied = false) {
    return tensor_shapes(ParamLayout(make_spec(config_of(tied), DType::kF16, 0).value()));
  }

  hf::TestFolder folder_;
};

TEST_F(LoadTest, SpecTakesEveryDimensionFromTheConfig) {
  const ModelSpec spec = make_spec(config_of(true), DType::kBF16, 0).value();
  EXPECT_EQ(spec.hidden, 32);
  EXPECT_EQ(spec.intermediate, 48);
  EXPECT_EQ(spec.layers, 2);
  EXPECT_EQ(spec.heads, 4);
  EXPECT_EQ(spec.kv_heads, 2);
  EXPECT_EQ(spec.head_dim, 10);
  EXPECT_EQ(spec.vocab, 1100);
  EXPECT_EQ(spec.rms_norm_eps, 1e-6F);
  EXPECT_EQ(spec.rope_theta, 50000.0);
  EXPECT_TRUE(spec.tied_embeddings);
  EXPECT_EQ(spec.dtype, DType::kBF16);
}

TEST_F(LoadTest, PositionsAreLimitedByModelAndCaller) {
  EXPECT_EQ(make_spec(config_of(true), DType::kF16, 0)->max_positions, 64);
  EXPECT_EQ(make_spec(config_of(true), DType::kF16, 40)->max_positions, 40);
  EXPECT_EQ(make_spec(config_of(true), DType::kF16, 4000)->max_positions, 64);
}

TEST_F(LoadTest, HeadsWiderThanTheKernelsHandleAreUnsupported) {
  hf::ModelConfig config = config_of(true);
  config.head_dim = kernels::kMaxHeadDim + 2;
  const auto spec = make_spec(config, DType::kF16, 0);
  ASSERT_FALSE(spec);
  EXPECT_EQ(spec.error().code(), Code::kUnsupported);
  EXPECT_THAT(spec.error().message(), HasSubstr("head_dim"));
}

TEST_F(LoadTest, TypesMapToAndFro) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_EQ(storage_dtype(file_dtype(dtype)), dtype);
    EXPECT_EQ(hf::dtype_name(file_dtype(dtype)), kernels::dtype_name(dtype));
  }
}

TEST_F(LoadTest, WrittenModelsLoadBitEqual) {
  for (const bool tied : {false, true})
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      const hf::ModelConfig config = config_of(tied);
      const ModelSpec spec = make_spec(config, dtype, 0).value();
      const auto model = testing::random_model(spec, 5);
      const auto path = folder_.path() / fmt::format("{} {}", kernels::dtype_name(dtype), tied);
      ASSERT_TRUE(write_model(*model, config, path, {}));
      const auto reader = hf::ModelWeightsReader::open(path).value();
      EXPECT_EQ(reader->contains("lm_head.weight"), !tied);
      const auto read_config = hf::ModelConfig::read(path).value();
      EXPECT_EQ(storage_dtype(read_config.dtype), dtype);
      const auto loaded = load_model(*reader, make_spec(read_config, dtype, 0).value());
      ASSERT_TRUE(loaded) << loaded.error().message();
      EXPECT_EQ((*loaded)->spec(), spec);
      EXPECT_EQ(bits(**loaded), bits(*model)) << path;
    }
}

TEST_F(LoadTest, ReadSliceGivesTheTensorUnrounded) {
  const hf::ModelConfig config = config_of(false);
  const auto model = testing::random_model(make_spec(config, DType::kF32, 0).value(), 5);
  ASSERT_TRUE(write_model(*model, config, folder_.path() / "model", {}));
  const auto reader = hf::ModelWeightsReader::open(folder_.path() / "model").value();
  const ParamInfo& qkv = model->layout()[model->layout().layer(1).qkv];
  for (const ParamSlice& slice : qkv.slices) {
    std::vector<float> read(static_cast<std::size_t>(slice.rows * qkv.cols)), stored(read.size());
    ASSERT_TRUE(read_slice(*reader, qkv, slice, read));
    model->weights().load(model->layout().layer(1).qkv, slice.first_row, slice.rows, stored.data());
    EXPECT_EQ(read, stored) << slice.name;
  }
}

TEST_F(LoadTest, AMissingTensorIsNamed) {
  auto tensors = good_tensors();
  std::erase_if(tensors, [](const auto& t) { return t.name == "model.layers.1.mlp.up_proj.weight"; });
  const auto model = load_with(tensors);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code(), Code::kNotFound);
  EXPECT_THAT(model.error().message(), HasSubstr("'model.layers.1.mlp.up_proj.weight'"));
}

TEST_F(LoadTest, AWrongShapeIsNamedWithBothShapes) {
  auto tensors = good_tensors();
  for (auto& tensor : tensors)
    if (tensor.name == "model.layers.0.self_attn.k_proj.weight") tensor.shape = {20, 31};
  const auto model = load_with(tensors);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(model.error().message(), AllOf(HasSubstr("'model.layers.0.self_attn.k_proj.weight'"),
                                             HasSubstr("[20, 31]"), HasSubstr("[20, 32]")));
}

TEST_F(LoadTest, AVectorWithTwoDimensionsIsAWrongShape) {
  auto tensors = good_tensors();
  for (auto& tensor : tensors)
    if (tensor.name == "model.norm.weight") tensor.shape = {1, 32};
  const auto model = load_with(tensors);
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message(), AllOf(HasSubstr("'model.norm.weight'"), HasSubstr("[1, 32]")));
}

TEST_F(LoadTest, ATensorThatTheArchitectureDoesNotUseIsRefused) {
  auto tensors = good_tensors();
  tensors.push_back({"model.layers.0.self_attn.q_proj.bias", {40}});
  const auto model = load_with(tensors);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code(), Code::kUnsupported);
  EXPECT_THAT(model.error().message(), HasSubstr("'model.layers.0.self_attn.q_proj.bias'"));
}

TEST_F(LoadTest, TensorsWithoutInformationAreIgnored) {
  auto tensors = good_tensors(true);
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {5}});
  tensors.push_back({"lm_head.weight", {1100, 32}});
  EXPECT_TRUE(load_with(tensors, 0.5F, DType::kF16, true));
}

TEST_F(LoadTest, AValueBeyondFp16IsNamedAndFitsTheOtherTypes) {
  const auto model = load_with(good_tensors(), 70000.0F);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code(), Code::kNumeric);
  EXPECT_THAT(model.error().message(),
              AllOf(HasSubstr("'model.embed_tokens.weight'"), HasSubstr("fp16"), HasSubstr("bf16")));
}

TEST_F(LoadTest, LargeValuesFitBf16) {
  EXPECT_TRUE(load_with(good_tensors(), 70000.0F, DType::kBF16));
}

}  // namespace
}  // namespace rondo::model
