#include "model/spec.h"

#include <gtest/gtest.h>

#include "testing/tiny_model.h"

namespace rondo::model {
namespace {

ModelSpec spec_of(std::int32_t kv_heads, std::int32_t intermediate) {
  ModelSpec spec = testing::tiny_spec();
  spec.kv_heads = kv_heads;
  spec.heads = 3 * kv_heads;
  spec.intermediate = intermediate;
  return spec;
}

TEST(SpecTest, ChainsAreTheLargestPowerOfTwoThatDividesKvHeadsAndMlpWidth) {
  struct Case {
    std::int32_t kv_heads, intermediate, chains;
  };
  for (const Case& c :
       {Case{1, 64, 1}, Case{3, 1536, 1}, Case{2, 48, 2}, Case{6, 64, 2}, Case{4, 48, 4}, Case{12, 24, 4},
        Case{8, 64, 8}, Case{8, 44, 4}, Case{8, 18, 2}, Case{8, 7, 1}, Case{16, 256, 8}, Case{32, 14336, 8}})
    EXPECT_EQ(spec_of(c.kv_heads, c.intermediate).chains(), c.chains) << c.kv_heads << ", " << c.intermediate;
}

TEST(SpecTest, WidthsFollowFromHeads) {
  ModelSpec spec = testing::tiny_spec(kernels::DType::kF16);  // 4 query and 2 KV heads of 8, 3 layers
  EXPECT_EQ(spec.q_width(), 32);
  EXPECT_EQ(spec.kv_width(), 16);
  EXPECT_EQ(spec.qkv_width(), 64);
  EXPECT_EQ(spec.kv_bytes_per_token(), 3 * 2 * 16 * 2);
  spec.dtype = kernels::DType::kF32;
  EXPECT_EQ(spec.kv_bytes_per_token(), 3 * 2 * 16 * 4);
}

TEST(SpecTest, AttentionScaleIsTheInverseRootOfTheHeadWidth) {
  ModelSpec spec = testing::tiny_spec();
  spec.head_dim = 64;
  EXPECT_EQ(spec.attention_scale(), 0.125F);
}

}  // namespace
}  // namespace rondo::model
