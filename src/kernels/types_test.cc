#include "kernels/types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/float16.h"
#include "kernels/op_table_test.h"

namespace rondo::kernels {
namespace {

float rounded(DType dtype, float value) {
  switch (dtype) {
    case DType::kF16:
      return half_to_float(float_to_half(value));
    case DType::kBF16:
      return bfloat16_to_float(float_to_bfloat16(value));
    case DType::kF32:
      break;
  }
  return value;
}

TEST(TypesTest, UnpackedRowsAreTheRoundedSource) {
  TestRandom random(1);
  for (const DType dtype : kAllDTypes) {
    SCOPED_TRACE(dtype_name(dtype));
    for (const auto& [rows, cols] : {std::pair(1, 1), {16, 3}, {37, 19}, {64, 33}}) {
      PackedMatrix matrix(dtype, rows, cols);
      const std::vector<float> source = random.reals(static_cast<std::size_t>(rows * cols), 100.0F);
      // In two pieces, the second first: rows are independent.
      const std::int64_t cut = rows / 2;
      EXPECT_TRUE(matrix.pack_rows(cut, rows - cut, source.data() + cut * cols));
      EXPECT_TRUE(matrix.pack_rows(0, cut, source.data()));
      std::vector<float> actual(source.size());
      matrix.unpack_rows(0, rows, actual.data());
      std::vector<float> expected = source;
      for (float& value : expected) value = rounded(dtype, value);
      expect_same_bits(actual, expected);
      std::vector<float> last(static_cast<std::size_t>(cols));
      matrix.unpack_rows(rows - 1, 1, last.data());
      expect_same_bits(last, std::span(expected).last(static_cast<std::size_t>(cols)));
    }
  }
}

TEST(TypesTest, PanelsHoldSixteenRowsSideBySideAndPadWithZero) {
  PackedMatrix matrix(DType::kF32, 17, 2);
  std::vector<float> source(34);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<float>(i + 1);
  ASSERT_TRUE(matrix.pack_rows(0, 17, source.data()));
  EXPECT_EQ(matrix.panels(), 2);
  EXPECT_EQ(matrix.bytes(), std::size_t{2 * 2 * 16 * 4});
  const auto* data = static_cast<const float*>(matrix.data());
  EXPECT_EQ(data[0], 1.0F);             // (0, 0)
  EXPECT_EQ(data[1], 3.0F);             // (1, 0)
  EXPECT_EQ(data[16], 2.0F);            // (0, 1)
  EXPECT_EQ(data[2 * 16], 33.0F);       // (16, 0)
  EXPECT_EQ(data[2 * 16 + 1], 0.0F);    // padding
  EXPECT_EQ(data[2 * 16 + 16], 34.0F);  // (16, 1)
}

TEST(TypesTest, MatricesInOneStorageKeepToTheirOwnBytes) {
  for (const DType dtype : kAllDTypes) {
    const std::size_t bytes = PackedMatrix::storage_bytes(dtype, 17, 4);
    EXPECT_EQ(bytes, PackedMatrix(dtype, 17, 4).bytes());
    AlignedBuffer<std::byte> storage(2 * bytes);
    PackedMatrix first(dtype, 17, 4, storage.data());
    PackedMatrix second(dtype, 17, 4, storage.data() + bytes);
    const std::vector<float> ones(17 * 4, 1.0F);
    const std::vector<float> twos(17 * 4, 2.0F);
    ASSERT_TRUE(second.pack_rows(0, 17, twos.data()));
    ASSERT_TRUE(first.pack_rows(0, 17, ones.data()));
    std::vector<float> read(17 * 4);
    const PackedMatrix again(dtype, 17, 4, storage.data() + bytes);  // as the storage holds it
    again.unpack_rows(0, 17, read.data());
    expect_same_bits(read, twos);
    first.unpack_rows(0, 17, read.data());
    expect_same_bits(read, ones);
  }
}

TEST(TypesTest, PackingTellsOfValuesBeyondTheType) {
  const float overflow = 65520.0F;  // rounds to infinity in fp16 alone
  for (const DType dtype : kAllDTypes) {
    PackedMatrix matrix(dtype, 1, 1);
    EXPECT_EQ(matrix.pack_rows(0, 1, &overflow), dtype != DType::kF16) << dtype_name(dtype);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(matrix.pack_rows(0, 1, &nan));
    EXPECT_EQ(round_to(dtype, overflow), rounded(dtype, overflow));
  }
}

}  // namespace
}  // namespace rondo::kernels
