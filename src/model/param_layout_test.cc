#include "model/param_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "model/load.h"
#include "testing/tiny_model.h"

namespace rondo::model {
namespace {

using kernels::KSegment;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// hidden 32, 4 query and 2 KV heads of 8, MLP 48, 97 tokens.
ModelSpec two_layers(bool tied) {
  ModelSpec spec = testing::tiny_spec();
  spec.layers = 2;
  spec.tied_embeddings = tied;
  return spec;
}

std::vector<std::string> names(const ParamLayout& layout) {
  std::vector<std::string> found;
  for (const ParamInfo& info : layout.params()) found.push_back(info.name);
  return found;
}

TEST(ParamLayoutTest, ParametersComeInModelOrder) {
  const ParamLayout layout(two_layers(false));
  EXPECT_THAT(names(layout),
              ElementsAre("embedding", "layers.0.attention_norm", "layers.0.qkv", "layers.0.output",
                          "layers.0.mlp_norm", "layers.0.gate_up", "layers.0.down", "layers.1.attention_norm",
                          "layers.1.qkv", "layers.1.output", "layers.1.mlp_norm", "layers.1.gate_up",
                          "layers.1.down", "final_norm", "head"));
}

TEST(ParamLayoutTest, TheIndicesNameTheirParameters) {
  const ParamLayout layout(two_layers(false));
  EXPECT_EQ(layout[layout.embedding()].name, "embedding");
  EXPECT_EQ(layout[layout.final_norm()].name, "final_norm");
  EXPECT_EQ(layout[layout.head()].name, "head");
  const LayerParams& second = layout.layer(1);
  EXPECT_EQ(layout[second.attention_norm].name, "layers.1.attention_norm");
  EXPECT_EQ(layout[second.qkv].name, "layers.1.qkv");
  EXPECT_EQ(layout[second.output].name, "layers.1.output");
  EXPECT_EQ(layout[second.mlp_norm].name, "layers.1.mlp_norm");
  EXPECT_EQ(layout[second.gate_up].name, "layers.1.gate_up");
  EXPECT_EQ(layout[second.down].name, "layers.1.down");
}

TEST(ParamLayoutTest, ATiedHeadIsTheEmbedding) {
  const ParamLayout tied(two_layers(true)), untied(two_layers(false));
  EXPECT_EQ(tied.head(), tied.embedding());
  EXPECT_EQ(tied.params().size() + 1, untied.params().size());
  EXPECT_EQ(tied.total() + 97 * 32, untied.total());
}

// The names and shapes that transformers gives the same model, written out by hand.
TEST(ParamLayoutTest, TensorsAreThoseOfTransformers) {
  std::vector<std::string> found;
  for (const hf::NamedShape& tensor : tensor_shapes(ParamLayout(two_layers(false))))
    found.push_back(fmt::format("{} {}", tensor.name, fmt::join(tensor.shape, "x")));
  std::vector<std::string> expected = {"model.embed_tokens.weight 97x32"};
  for (const char* layer : {"model.layers.0.", "model.layers.1."})
    for (const char* tensor :
         {"input_layernorm.weight 32", "self_attn.q_proj.weight 32x32", "self_attn.k_proj.weight 16x32",
          "self_attn.v_proj.weight 16x32", "self_attn.o_proj.weight 32x32",
          "post_attention_layernorm.weight 32", "mlp.gate_proj.weight 48x32", "mlp.up_proj.weight 48x32",
          "mlp.down_proj.weight 32x48"})
      expected.push_back(std::string(layer) + tensor);
  expected.insert(expected.end(), {"model.norm.weight 32", "lm_head.weight 97x32"});
  EXPECT_EQ(found, expected);
}

TEST(ParamLayoutTest, SlicesCoverTheirParameterInOrder) {
  const ParamLayout layout(two_layers(false));
  std::int64_t total = 0;
  for (const ParamInfo& info : layout.params()) {
    std::int64_t row = 0;
    for (const ParamSlice& slice : info.slices) {
      EXPECT_EQ(slice.first_row, row) << slice.name;
      EXPECT_GT(slice.rows, 0) << slice.name;
      row += slice.rows;
    }
    EXPECT_EQ(row, info.rows) << info.name;
    EXPECT_EQ(info.is_vector, info.name.ends_with("norm")) << info.name;
    total += info.rows * info.cols;
  }
  EXPECT_EQ(layout.total(), total);
}

// A spec with `v` chains, no width a multiple of another by chance: two query heads per KV head.
ModelSpec spec_with_chains(std::int32_t v) {
  ModelSpec spec = testing::tiny_spec();
  spec.kv_heads = 3 * v;
  spec.heads = 6 * v;
  spec.head_dim = 6;
  spec.intermediate = 5 * v;
  return spec;
}

// Every index in [0, count) once.
void expect_cover(const std::vector<KSegment>& segments, std::int32_t count) {
  std::vector<int> visits(static_cast<std::size_t>(count));
  for (const KSegment& segment : segments)
    for (std::int32_t i = segment.begin; i < segment.end; ++i) ++visits.at(static_cast<std::size_t>(i));
  EXPECT_EQ(std::ranges::count(visits, 1), count);
}

// The indices that chain `chain` visits, in order.
std::vector<std::int32_t> visited(const std::vector<KSegment>& segments, std::int32_t chain) {
  std::vector<std::int32_t> indices;
  for (const KSegment& segment : segments)
    for (std::int32_t i = segment.begin; segment.chain == chain && i < segment.end; ++i) indices.push_back(i);
  return indices;
}

// What one of `v` tensor-parallel ranks holds of the concatenation of `parts`: its share of each, in turn.
std::vector<std::int32_t> share_of_rank(std::int32_t rank, std::int32_t v, std::vector<std::int32_t> parts) {
  std::vector<std::int32_t> indices;
  std::int32_t first = 0;
  for (const std::int32_t part : parts) {
    for (std::int32_t i = part / v * rank; i < part / v * (rank + 1); ++i) indices.push_back(first + i);
    first += part;
  }
  return indices;
}

class SumOrdersTest : public ::testing::TestWithParam<std::int32_t> {};

TEST_P(SumOrdersTest, CoverEveryIndexOnce) {
  const ModelSpec spec = spec_with_chains(GetParam());
  ASSERT_EQ(spec.chains(), GetParam());
  const SumOrders orders = sum_orders(spec);
  expect_cover(orders.output, spec.q_width());
  expect_cover(orders.down, spec.intermediate);
  expect_cover(orders.qkv_input, spec.qkv_width());
  expect_cover(orders.gate_up_input, 2 * spec.intermediate);
  expect_cover(orders.head_input, spec.vocab);
}

TEST_P(SumOrdersTest, EachChainIsTheShareOfOneTensorParallelRank) {
  const std::int32_t v = GetParam();
  const ModelSpec spec = spec_with_chains(v);
  const SumOrders orders = sum_orders(spec);
  const std::int32_t q = spec.q_width(), kv = spec.kv_width(), mlp = spec.intermediate;
  for (std::int32_t chain = 0; chain < v; ++chain) {
    EXPECT_EQ(visited(orders.output, chain), share_of_rank(chain, v, {q}));
    EXPECT_EQ(visited(orders.down, chain), share_of_rank(chain, v, {mlp}));
    EXPECT_EQ(visited(orders.qkv_input, chain), share_of_rank(chain, v, {q, kv, kv}));
    EXPECT_EQ(visited(orders.gate_up_input, chain), share_of_rank(chain, v, {mlp, mlp}));
  }
}

TEST_P(SumOrdersTest, ChainsAreWholeHeads) {
  const std::int32_t v = GetParam();
  const ModelSpec spec = spec_with_chains(v);
  const std::int32_t queries_per_kv_head = spec.heads / spec.kv_heads * spec.head_dim;
  for (const KSegment& segment : sum_orders(spec).output) {
    EXPECT_EQ(segment.begin % queries_per_kv_head, 0);
    EXPECT_EQ(segment.end % queries_per_kv_head, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Chains, SumOrdersTest, ::testing::Values(1, 2, 4, 8));

TEST(ParamLayoutTest, TheVocabularyIsCutAsIfPaddedToAMultipleOfTheChains) {
  ModelSpec spec = spec_with_chains(8);
  const auto cuts = [&](std::int32_t vocab) {
    spec.vocab = vocab;
    std::vector<std::int32_t> ends;
    for (const KSegment& segment : sum_orders(spec).head_input) ends.push_back(segment.end);
    return ends;
  };
  EXPECT_THAT(cuts(97), ElementsAre(13, 26, 39, 52, 65, 78, 91, 97));  // 104 = 8 * 13
  EXPECT_THAT(cuts(96), ElementsAre(12, 24, 36, 48, 60, 72, 84, 96));
  EXPECT_THAT(cuts(5), ElementsAre(1, 2, 3, 4, 5, 5, 5, 5));
}

}  // namespace
}  // namespace rondo::model
