#include "hf/tensor_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/float16.h"

namespace rondo::hf {
namespace {

using testing::HasSubstr;

TensorView view_of(DType dtype, std::span<const std::byte> bytes) {
  return {.name = "w", .dtype = dtype, .bytes = bytes};
}

// Every finite 16-bit pattern, read at an odd address, comes back with its bits.
void expect_all_patterns_survive(DType dtype, float (*to_float)(std::uint16_t)) {
  std::vector<std::byte> bytes(1);
  std::vector<std::uint16_t> patterns;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    if (!std::isfinite(to_float(static_cast<std::uint16_t>(bits)))) continue;
    patterns.push_back(static_cast<std::uint16_t>(bits));
    bytes.push_back(static_cast<std::byte>(bits & 0xff));
    bytes.push_back(static_cast<std::byte>(bits >> 8));
  }
  std::vector<float> values(patterns.size());
  widen(view_of(dtype, std::span(bytes).subspan(1)), 0, values);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], to_float(patterns[i]));
  std::vector<std::byte> back(bytes.size() - 1);
  ASSERT_TRUE(narrow("w", 0, values, dtype, back));
  EXPECT_TRUE(std::equal(back.begin(), back.end(), bytes.begin() + 1));
}

TEST(TensorViewTest, SixteenBitTypesSurviveTheRoundTrip) {
  expect_all_patterns_survive(DType::kBf16, bfloat16_to_float);
  expect_all_patterns_survive(DType::kFp16, half_to_float);
}

TEST(TensorViewTest, WidensAPartOfTheTensor) {
  const std::vector<float> values = {1.0f, -0.0f, 1e-45f, 3.5f};
  const TensorView view = view_of(DType::kFp32, std::as_bytes(std::span(values)));
  EXPECT_EQ(view.num_elements(), 4);
  std::vector<float> part(2);
  widen(view, 1, part);
  EXPECT_TRUE(std::signbit(part[0]));
  EXPECT_EQ(part[1], 1e-45f);
}

// 65504 is the largest; 65520 is half a unit above it and rounds to infinity, the float below does not.
TEST(TensorViewTest, TheRangeOfFp16EndsWhereRoundingLeavesIt) {
  std::vector<std::byte> out(2);
  const std::vector<float> below = {std::nextafter(65520.0f, 0.0f)};
  ASSERT_TRUE(narrow("w", 0, below, DType::kFp16, out));
  std::uint16_t bits;
  std::memcpy(&bits, out.data(), 2);
  EXPECT_EQ(half_to_float(bits), kHalfMax);
  for (const float beyond : {65520.0f, -65520.0f, 1e30f}) {
    const auto result = narrow("layers.3.w", 40, std::vector<float>{beyond}, DType::kFp16, out);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), Code::kNumeric);
    EXPECT_THAT(result.error().message(), HasSubstr("tensor 'layers.3.w': element 40"));
    EXPECT_THAT(result.error().message(), HasSubstr("beyond the range of fp16"));
  }
}

TEST(TensorViewTest, NoTypeStoresWhatIsNotFinite) {
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32})
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      const std::vector<float> values = {0.0f, bad};
      std::vector<std::byte> out(2 * dtype_size(dtype));
      const auto result = narrow("w", 10, values, dtype, out);
      ASSERT_FALSE(result);
      EXPECT_THAT(result.error().message(), HasSubstr("tensor 'w': element 11"));
    }
}

TEST(TensorViewTest, NamesGoBothWays) {
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    EXPECT_EQ(parse_dtype(dtype_name(dtype)).value(), dtype);
    EXPECT_EQ(parse_config_dtype(dtype_config_name(dtype)).value(), dtype);
    EXPECT_EQ(parse_safetensors_dtype(dtype_safetensors_name(dtype)).value(), dtype);
  }
  EXPECT_THAT(parse_dtype("half").error().message(), HasSubstr("bf16, fp16 and fp32"));
}

}  // namespace
}  // namespace rondo::hf
