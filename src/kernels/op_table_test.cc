// matmul, transpose and weight_grad of every target against the plain loops.
#include "kernels/op_table_test.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

namespace rondo::kernels {
namespace {

PackedMatrix random_matrix(TestRandom& random, DType dtype, std::int64_t rows, std::int64_t cols) {
  PackedMatrix matrix(dtype, rows, cols);
  matrix.pack_rows(0, rows, random.reals(static_cast<std::size_t>(rows * cols)).data());
  return matrix;
}

// `chains` contiguous chains over [0, cols) in stretches of at most 40, the first chain's visited out of
// order, and some empty ones, at the end too.
std::vector<KSegment> random_segments(TestRandom& random, std::int32_t cols, std::int32_t chains) {
  std::vector<KSegment> segments;
  for (std::int32_t c = 0; c < chains; ++c) {
    const std::int32_t end = cols * (c + 1) / chains;
    for (std::int32_t k = cols * c / chains; k < end;) {
      const std::int32_t next = std::min(end, k + random.integer(1, 40));
      segments.push_back({k, next, c});
      k = next;
    }
  }
  if (segments.size() > 2) std::swap(segments[0], segments[segments.size() / 2]);
  if (random.integer(0, 1) == 0) segments.insert(segments.begin(), {0, 0, 0});
  if (random.integer(0, 1) == 0) segments.push_back({cols, cols, chains - 1});
  return segments;
}

struct MatmulCase {
  DType dtype;
  std::int64_t rows;
  std::int64_t outs;
  std::int64_t cols;
  std::int32_t chains;  // 0: no segments
  bool residual;
};

MatmulCase random_case(TestRandom& random) {
  const int kind = random.integer(0, 9);  // few rows, a block of them, several
  const int rows = random.integer(1, kind < 3 ? 4 : kind < 9 ? 67 : 450);
  return {.dtype = kAllDTypes[random.integer(0, 2)],
          .rows = rows,
          .outs = random.integer(1, 150),
          .cols = random.integer(1, 700),
          .chains = random.integer(0, 1) == 0 ? 0 : 1 << random.integer(0, 3),
          .residual = random.integer(0, 1) == 1};
}

// The target's and the reference's result for the same random operands: all of y, so that a write outside the
// asked columns shows. Odd offsets and leading dimensions leave every row unaligned.
void check_matmul(const OpTable& target, TestRandom& random, const MatmulCase& c) {
  const PackedMatrix w = random_matrix(random, c.dtype, c.outs, c.cols);
  const std::int64_t ldx = c.cols + random.integer(0, 3);
  const std::int64_t ldy = c.outs + random.integer(0, 3);
  const std::vector<float> x = random.reals(static_cast<std::size_t>(c.rows * ldx + 1));
  const std::vector<KSegment> segments =
      c.chains == 0 ? std::vector<KSegment>()
                    : random_segments(random, static_cast<std::int32_t>(c.cols), c.chains);
  const std::vector<float> before = random.reals(static_cast<std::size_t>(c.rows * ldy + 1));
  std::vector<float> actual = before;
  std::vector<float> expected = before;
  MatmulArgs args = {.w = &w,
                     .x = x.data() + 1,
                     .ldx = ldx,
                     .y = actual.data() + 1,
                     .ldy = ldy,
                     .residual = c.residual ? actual.data() + 1 : nullptr,
                     .row_begin = random.integer(0, 1),
                     .row_end = c.rows,
                     .panel_begin = random.integer(0, static_cast<int>(w.panels()) - 1),
                     .panel_end = w.panels(),
                     .segments = segments};
  target.matmul(args);
  args.y = expected.data() + 1;
  args.residual = c.residual ? expected.data() + 1 : nullptr;
  reference::table().matmul(args);
  SCOPED_TRACE(testing::Message() << dtype_name(c.dtype) << " rows " << c.rows << " outs " << c.outs
                                  << " cols " << c.cols << " chains " << c.chains << " residual "
                                  << c.residual);
  expect_same_bits(actual, expected);
}

int rounds(const OpTable& target) {
  return std::string_view(target.name) == "portable" ? 40 : 200;
}

TEST(OpTableTest, PortableIsTheLastTarget) {
  EXPECT_STREQ(available_targets().back()->name, "portable");
}

TEST(OpTableTest, MatmulOfRandomShapesEqualsThePlainLoop) {
  for_each_target([](const OpTable& target) {
    TestRandom random(1);
    for (int i = 0; i < rounds(target) && !testing::Test::HasFailure(); ++i)
      check_matmul(target, random, random_case(random));
  });
}

TEST(OpTableTest, MatmulOfEveryRowCountEqualsThePlainLoop) {
  for_each_target([](const OpTable& target) {
    TestRandom random(2);
    for (std::int64_t rows = 1; rows <= 40 && !testing::Test::HasFailure(); ++rows)
      for (const DType dtype : kAllDTypes)
        check_matmul(target, random, {dtype, rows, 16 * 9 + 5, 33, 0, rows % 2 == 1});
  });
}

TEST(OpTableTest, MatmulLongerThanOneBlockOfKEqualsThePlainLoop) {
  for_each_target([](const OpTable& target) {
    TestRandom random(3);
    for (const std::int32_t chains : {0, 1, 2, 4, 8})
      for (const std::int64_t rows : {1, 5, 29, 73})
        check_matmul(target, random, {DType::kBF16, rows, 37, 2311, chains, false});
  });
}

// Whole panels of one chain, whose last stretch of k is long: the tiles write the results themselves.
TEST(OpTableTest, MatmulOfManyRowsEqualsThePlainLoop) {
  for_each_target([](const OpTable& target) {
    TestRandom random(5);
    for (const std::int64_t rows : {65, 191, 193, 385})
      for (const DType dtype : kAllDTypes)
        check_matmul(target, random, {dtype, rows, 48, random.integer(65, 384), 0, rows % 3 == 1});
  });
}

TEST(OpTableTest, TransposeEqualsThePlainLoop) {
  for_each_target([](const OpTable& target) {
    TestRandom random(4);
    for (int i = 0; i < 60 && !testing::Test::HasFailure(); ++i) {
      const DType dtype = kAllDTypes[i % 3];
      const PackedMatrix w = random_matrix(random, dtype, random.integer(1, 100), random.integer(1, 100));
      const DType out_dtype = random.integer(0, 1) == 0 ? dtype : DType::kF32;
      PackedMatrix actual(out_dtype, w.cols(), w.rows());
      PackedMatrix expected(out_dtype, w.cols(), w.rows());
      const std::int64_t first = random.integer(0, static_cast<int>(actual.panels()) - 1);
      TransposeArgs args = {.w = &w, .out = &actual, .panel_begin = first, .panel_end = actual.panels()};
      target.transpose(args);
      args.out = &expected;
      reference::table().transpose(args);
      SCOPED_TRACE(testing::Message() << w.rows() << " x " << w.cols() << " " << dtype_name(dtype));
      ASSERT_EQ(std::memcmp(actual.data(), expected.data(), expected.bytes()), 0);
    }
  });
}

TEST(OpTableTest, WeightGradEqualsThePlainLoop) {
  for_each_target([](const OpTable& target) {
    TestRandom random(5);
    for (int i = 0; i < rounds(target) / 4 && !testing::Test::HasFailure(); ++i) {
      const std::int64_t m = random.integer(0, 9) == 0 ? random.integer(500, 700) : random.integer(0, 70);
      const std::int64_t r = random.integer(1, 60);
      const std::int64_t c = random.integer(1, 150);
      const std::int64_t lddy = r + random.integer(0, 3);
      const std::int64_t ldx = c + random.integer(0, 3);
      const std::int64_t lddw = c + random.integer(0, 3);
      const std::vector<float> dy = random.reals(static_cast<std::size_t>(m * lddy + 1));
      const std::vector<float> x = random.reals(static_cast<std::size_t>(m * ldx + 1));
      std::vector<float> actual = random.reals(static_cast<std::size_t>(r * lddw + 1));
      std::vector<float> expected = actual;
      WeightGradArgs args = {.dy = dy.data() + 1,
                             .lddy = lddy,
                             .x = x.data() + 1,
                             .ldx = ldx,
                             .dw = actual.data() + 1,
                             .lddw = lddw,
                             .rows = m,
                             .cols = c,
                             .r_begin = random.integer(0, static_cast<int>(r) - 1),
                             .r_end = r,
                             .continue_chain = random.integer(0, 1) == 1};
      target.weight_grad(args);
      args.dw = expected.data() + 1;
      reference::table().weight_grad(args);
      SCOPED_TRACE(testing::Message() << "m " << m << " r " << r << " c " << c);
      expect_same_bits(actual, expected);
    }
  });
}

TEST(OpTableTest, WeightGradSumEqualsThePlainLoop) {
  for_each_target([](const OpTable& target) {
    TestRandom random(6);
    for (int i = 0; i < rounds(target) / 8 && !testing::Test::HasFailure(); ++i) {
      const bool large = random.integer(0, 9) == 0;  // more than one block each way
      const std::int64_t m = large ? random.integer(1, 3) : random.integer(0, 150);
      const std::int64_t r = large ? random.integer(385, 800) : random.integer(1, 60);
      const std::int64_t c = large ? random.integer(577, 700) : random.integer(1, 150);
      const std::int64_t lddy = r + random.integer(0, 3);
      const std::int64_t ldx = c + random.integer(0, 3);
      const std::int64_t ldsum = c + random.integer(0, 3);
      const std::vector<float> dy = random.reals(static_cast<std::size_t>(m * lddy + 1));
      const std::vector<float> x = random.reals(static_cast<std::size_t>(m * ldx + 1));
      std::vector<std::int64_t> actual;
      for (std::int64_t k = 0; k < r * ldsum; ++k) actual.push_back(random.integer(-1000, 1000));
      std::vector<std::int64_t> expected = actual;
      WeightGradSumArgs args = {.dy = dy.data() + 1,
                                .lddy = lddy,
                                .x = x.data() + 1,
                                .ldx = ldx,
                                .sum = actual.data(),
                                .ldsum = ldsum,
                                .rows = m,
                                .cols = c,
                                .r_begin = random.integer(0, static_cast<int>(r) - 1),
                                .r_end = r};
      EXPECT_TRUE(target.weight_grad_sum(args));
      args.sum = expected.data();
      EXPECT_TRUE(reference::table().weight_grad_sum(args));
      ASSERT_EQ(actual, expected) << "m " << m << " r " << r << " c " << c;
    }
  });
}

TEST(OpTableTest, WeightGradSumReportsWhatDoesNotFit) {
  const std::vector<float> dy(20, 1.0F);
  for_each_target([&](const OpTable& target) {
    for (const float bad : {0x1p26F, std::numeric_limits<float>::quiet_NaN()}) {
      for (std::size_t place = 0; place < 50; ++place) {
        std::vector<float> x(50, 1.0F);
        x[place] = bad;
        std::vector<std::int64_t> sum(20 * 50);
        EXPECT_FALSE(target.weight_grad_sum({.dy = dy.data(),
                                             .lddy = 20,
                                             .x = x.data(),
                                             .ldx = 50,
                                             .sum = sum.data(),
                                             .ldsum = 50,
                                             .rows = 1,
                                             .cols = 50,
                                             .r_begin = 0,
                                             .r_end = 20}));
      }
    }
  });
}

// Values whose rounding to 16 bits has an edge, and any others.
float any_bits(TestRandom& random) {
  constexpr std::uint32_t kEdges[] = {0x00000000, 0x80000000, 0x00000001, 0x33000000, 0x33000001,
                                      0x387FE000, 0x387FF000, 0x38800000, 0x3F801000, 0x3F803000,
                                      0x3F808000, 0x3F818000, 0x477FE000, 0x477FEFFF, 0x7F7F7FFF};
  if (random.integer(0, 1) == 0) return std::bit_cast<float>(kEdges[random.integer(0, 14)]);
  return std::ldexp(random.real(), random.integer(-26, 15));
}

TEST(OpTableTest, PackRowsEqualsThePlainLoop) {
  for_each_target([](const OpTable& target) {
    TestRandom random(7);
    for (int i = 0; i < rounds(target) / 2 && !testing::Test::HasFailure(); ++i) {
      const DType dtype = kAllDTypes[random.integer(0, 2)];
      const std::int64_t rows = random.integer(1, 70), cols = random.integer(1, 70);
      const std::int64_t first = random.integer(0, static_cast<int>(rows) - 1);
      const std::int64_t count = random.integer(0, static_cast<int>(rows - first));
      std::vector<float> source(static_cast<std::size_t>(count * cols));
      for (float& value : source) value = any_bits(random);
      if (random.integer(0, 3) == 0 && !source.empty()) {
        const float bad[] = {65520.0F, -1e38F, std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::quiet_NaN(), 0x1.FFFFFEp127F};
        source[static_cast<std::size_t>(random.integer(0, static_cast<int>(source.size()) - 1))] =
            bad[random.integer(0, 4)];
      }
      PackedMatrix actual(dtype, rows, cols), expected(dtype, rows, cols);
      const bool fine = expected.pack_rows(first, count, source.data());
      EXPECT_EQ(target.pack_rows({.w = &actual, .first = first, .count = count, .source = source.data()}),
                fine);
      SCOPED_TRACE(testing::Message() << rows << " x " << cols << " " << dtype_name(dtype));
      ASSERT_EQ(std::memcmp(actual.data(), expected.data(), expected.bytes()), 0);
    }
  });
}

}  // namespace
}  // namespace rondo::kernels
