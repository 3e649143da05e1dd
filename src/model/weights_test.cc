#include "model/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "base/float16.h"
#include "testing/tiny_model.h"

namespace rondo::model {
namespace {

using kernels::DType;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<float> ramp(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i) / 7 - 3;
  return values;
}

TEST(WeightsTest, ANewModelIsZero) {
  const auto model = Model::create(testing::tiny_spec(DType::kF16)).value();
  for (std::size_t i = 0; i < model->layout().params().size(); ++i) {
    const ParamInfo& info = model->layout().params()[i];
    std::vector<float> values(static_cast<std::size_t>(info.count()), 1);
    model->weights().load(static_cast<ParamIndex>(i), 0, info.rows, values.data());
    EXPECT_EQ(values, std::vector<float>(values.size())) << info.name;
  }
}

TEST(WeightsTest, LoadReturnsWhatWasStoredRoundedToTheType) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const auto model = Model::create(testing::tiny_spec(dtype)).value();
    for (const ParamIndex i : {model->layout().layer(1).qkv, model->layout().final_norm()}) {
      const ParamInfo& info = model->layout()[i];
      std::vector<float> values = ramp(static_cast<std::size_t>(info.count())), loaded(values.size());
      ASSERT_TRUE(model->weights().store(i, 0, info.rows, values.data()));
      model->weights().load(i, 0, info.rows, loaded.data());
      for (float& value : values) value = kernels::round_to(dtype, value);
      EXPECT_EQ(loaded, values) << info.name << " in " << kernels::dtype_name(dtype);
    }
  }
}

TEST(WeightsTest, RowsAreStoredAndLoadedInPieces) {
  const auto model = Model::create(testing::tiny_spec()).value();
  const ParamIndex head = model->layout().head();  // [97, 32]
  const std::vector<float> values = ramp(97 * 32);
  for (const auto& [first, rows] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{50, 47}, {0, 17}, {17, 33}})
    ASSERT_TRUE(model->weights().store(head, first, rows, values.data() + first * 32));
  std::vector<float> loaded(3 * 32);
  model->weights().load(head, 15, 3, loaded.data());
  EXPECT_EQ(loaded, std::vector<float>(values.begin() + 15 * 32, values.begin() + 18 * 32));
}

TEST(WeightsTest, PaddingStaysZero) {
  const auto model = testing::random_model(testing::tiny_spec(DType::kF32), 3);
  const kernels::PackedMatrix& head = model->weights().matrix(model->layout().head());
  const auto* panel = static_cast<const float*>(head.data()) + 6 * 32 * kernels::kPanel;  // rows 96 to 111
  ASSERT_EQ(head.panels(), 7);
  for (std::int64_t c = 0; c < 32; ++c) {
    EXPECT_NE(panel[c * kernels::kPanel], 0);
    for (std::int64_t r = 1; r < kernels::kPanel; ++r) EXPECT_EQ(panel[c * kernels::kPanel + r], 0);
  }
}

// fp16 rounds 65519 down to its greatest value, and 65520 to infinity.
TEST(WeightsTest, ValuesBeyondTheTypeNameTheTensor) {
  const auto model = Model::create(testing::tiny_spec(DType::kF16)).value();
  const ParamIndex qkv = model->layout().layer(2).qkv;  // q: 32 rows, k: 16, v: 16
  std::vector<float> row(32, 1.0F);
  row[9] = 65519.0F;
  EXPECT_TRUE(model->weights().store(qkv, 40, 1, row.data()));
  row[9] = 65520.0F;
  const auto stored = model->weights().store(qkv, 40, 1, row.data());
  ASSERT_FALSE(stored);
  EXPECT_EQ(stored.error().code(), Code::kNumeric);
  EXPECT_THAT(stored.error().message(),
              AllOf(HasSubstr("'model.layers.2.self_attn.k_proj.weight'"), HasSubstr("fp16")));
}

TEST(WeightsTest, VectorsAndNanAreCheckedToo) {
  const auto model = Model::create(testing::tiny_spec(DType::kF32)).value();
  std::vector<float> row(32, 1.0F);
  row[31] = std::numeric_limits<float>::quiet_NaN();
  const auto stored = model->weights().store(model->layout().final_norm(), 0, 1, row.data());
  ASSERT_FALSE(stored);
  EXPECT_THAT(stored.error().message(), HasSubstr("'model.norm.weight'"));
}

TEST(WeightsTest, BytesFollowTheType) {
  const auto half = Model::create(testing::tiny_spec(DType::kF16)).value();
  const auto full = Model::create(testing::tiny_spec(DType::kF32)).value();
  const auto vectors = std::size_t{7} * 32 * sizeof(float);  // two per layer and the last, always fp32
  EXPECT_EQ(2 * (half->weights().bytes() - vectors), full->weights().bytes() - vectors);
}

TEST(WeightsTest, ImpossibleRotaryDimensionsAreAnError) {
  ModelSpec spec = testing::tiny_spec();
  spec.rope_theta = 0.5;
  const auto model = Model::create(spec);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace rondo::model
