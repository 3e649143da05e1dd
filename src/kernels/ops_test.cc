// The threaded entry points: the number of threads changes no bit, and every one covers its whole range.
#include "kernels/ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <tuple>
#include <vector>

#include "kernels/machine_limits.h"
#include "kernels/op_table_test.h"

namespace rondo::kernels {
namespace {

// Teams of other sizes than the work divides into, against a team of one.
constexpr int kTeams[] = {2, 3, 4, 7};

// Calls `compute(ctx)`, which returns a vector of fp32, with every team; all must equal one thread's.
template <class Compute>
void expect_same_for_all_teams(const Compute& compute) {
  ThreadPool one(1);
  const std::vector<float> expected = compute(Context{available_targets().front(), &one});
  for (const int threads : kTeams) {
    SCOPED_TRACE(threads);
    ThreadPool pool(threads);
    expect_same_bits(compute(Context{available_targets().front(), &pool}), expected);
  }
}

PackedMatrix random_matrix(TestRandom& random, DType dtype, std::int64_t rows, std::int64_t cols) {
  PackedMatrix matrix(dtype, rows, cols);
  matrix.pack_rows(0, rows, random.reals(static_cast<std::size_t>(rows * cols)).data());
  return matrix;
}

std::vector<float> matmul_by_reference(const PackedMatrix& w, const std::vector<float>& x, std::int64_t rows,
                                       std::span<const KSegment> segments) {
  std::vector<float> y(static_cast<std::size_t>(rows * w.rows()));
  reference::table().matmul({.w = &w,
                             .x = x.data(),
                             .ldx = w.cols(),
                             .y = y.data(),
                             .ldy = w.rows(),
                             .residual = nullptr,
                             .row_begin = 0,
                             .row_end = rows,
                             .panel_begin = 0,
                             .panel_end = w.panels(),
                             .segments = segments});
  return y;
}

TEST(OpsTest, MatmulEqualsThePlainLoopForEveryTeam) {
  TestRandom random(1);
  for (const auto& [rows, outs, cols] :
       {std::tuple(1, 250, 64), {3, 16, 40}, {130, 20, 50}, {200, 130, 70}}) {
    const PackedMatrix w = random_matrix(random, DType::kF16, outs, cols);
    const std::vector<float> x = random.reals(static_cast<std::size_t>(rows * cols));
    const KSegment segments[] = {{0, cols / 2, 0}, {cols / 2, cols, 1}};
    const std::vector<float> expected = matmul_by_reference(w, x, rows, segments);
    expect_same_for_all_teams([&](const Context& ctx) {
      std::vector<float> y(expected.size(), 7.0F);
      matmul(ctx, w, x.data(), cols, rows, y.data(), outs, nullptr, segments);
      expect_same_bits(y, expected);
      return y;
    });
  }
}

TEST(OpsTest, MatmulSwigluEqualsProductAndActivationForEveryTeam) {
  TestRandom random(8);
  // Widths in whole panels, and one where gate and up share a panel.
  for (const auto& [rows, width, cols] :
       {std::tuple(1, 112, 64), {5, 16, 40}, {64, 192, 50}, {200, 48, 70}, {9, 40, 33}}) {
    const PackedMatrix w = random_matrix(random, DType::kF16, 2 * width, cols);
    const std::vector<float> x = random.reals(static_cast<std::size_t>(rows * cols));
    const std::vector<float> gate_up = matmul_by_reference(w, x, rows, {});
    std::vector<float> expected(static_cast<std::size_t>(rows * width));
    SwigluArgs args = {};
    args.gate = gate_up.data();
    args.up = gate_up.data() + width;
    args.ld_gate_up = 2 * width;
    args.y = expected.data();
    args.ldy = args.width = width;
    args.row_end = rows;
    reference::table().swiglu(args);
    expect_same_for_all_teams([&](const Context& ctx) {
      std::vector<float> both(gate_up.size(), 7.0F), y(expected.size(), 7.0F);
      matmul_swiglu(ctx, w, x.data(), cols, rows, both.data(), y.data());
      expect_same_bits(both, gate_up);
      expect_same_bits(y, expected);
      return y;
    });
  }
}

TEST(OpsTest, InputGradIsTheProductWithTheTransposedWeights) {
  TestRandom random(2);
  const std::int64_t rows = 9, outs = 45, cols = 83;
  const PackedMatrix w = random_matrix(random, DType::kBF16, outs, cols);
  const std::vector<float> dy = random.reals(rows * outs);
  const std::vector<float> before = random.reals(rows * cols);
  std::vector<float> flat(outs * cols);
  w.unpack_rows(0, outs, flat.data());
  PackedMatrix turned(DType::kF32, cols, outs);
  for (std::int64_t c = 0; c < cols; ++c) {
    std::vector<float> row(outs);
    for (std::int64_t r = 0; r < outs; ++r)
      row[static_cast<std::size_t>(r)] = flat[static_cast<std::size_t>(r * cols + c)];
    turned.pack_rows(c, 1, row.data());
  }
  const std::vector<float> product = matmul_by_reference(turned, dy, rows, {});
  expect_same_for_all_teams([&](const Context& ctx) {
    PackedMatrix scratch;
    std::vector<float> dx(before.size());
    matmul_input_grad(ctx, w, dy.data(), outs, rows, dx.data(), cols, scratch);
    expect_same_bits(dx, product);
    const void* kept = scratch.data();
    dx = before;
    matmul_input_grad(ctx, w, dy.data(), outs, rows, dx.data(), cols, scratch, {.accumulate = true});
    EXPECT_EQ(scratch.data(), kept);
    for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_EQ(dx[i], before[i] + product[i]);
    return dx;
  });
}

TEST(OpsTest, WeightGradEqualsThePlainLoopForEveryTeam) {
  TestRandom random(3);
  const std::int64_t m = 150, r = 77, c = 61;
  const std::vector<float> dy = random.reals(m * r), x = random.reals(m * c);
  WeightGradArgs args = {.dy = dy.data(),
                         .lddy = r,
                         .x = x.data(),
                         .ldx = c,
                         .dw = nullptr,
                         .lddw = c,
                         .rows = m,
                         .cols = c,
                         .r_begin = 0,
                         .r_end = r,
                         .continue_chain = false};
  std::vector<float> expected(r * c);
  args.dw = expected.data();
  reference::table().weight_grad(args);
  expect_same_for_all_teams([&](const Context& ctx) {
    std::vector<float> dw(expected.size());
    WeightGradArgs own = args;
    own.dw = dw.data();
    weight_grad(ctx, own);
    expect_same_bits(dw, expected);
    return dw;
  });
}

// A table whose attention counts how often each (row, KV head) is computed.
struct AttentionCount {
  static constexpr int kRows = 200;
  static constexpr int kHeads = 3;
  static inline std::atomic<int> counts[kHeads][kRows];
  static void attention(const AttentionArgs& args) {
    for (const SequenceSpan& span : args.spans) {
      // A row keeps its position however its span is cut: in this test position = row + 5.
      EXPECT_EQ(span.first_position, span.first_row + 5);
      for (int row = 0; row < span.rows; ++row) ++counts[args.kv_head][span.first_row + row];
    }
  }
};

TEST(OpsTest, AttentionComputesEveryRowAndHeadOnce) {
  OpTable table = *available_targets().front();
  table.attention = AttentionCount::attention;
  const KvView kv = {.kv_heads = AttentionCount::kHeads, .head_dim = 4};
  TestRandom random(4);
  for (int round = 0; round < 50; ++round) {
    std::vector<SequenceSpan> spans;
    std::int32_t row = 0;
    while (row < AttentionCount::kRows) {
      const std::int32_t longest = random.integer(0, 1) == 0 ? 1 : 90;
      const std::int32_t rows = std::min(AttentionCount::kRows - row, random.integer(1, longest));
      spans.push_back({.block_table = nullptr, .first_position = row + 5, .first_row = row, .rows = rows});
      row += rows;
    }
    for (const int threads : {1, 2, 5}) {
      for (auto& head : AttentionCount::counts)
        for (std::atomic<int>& count : head) count = 0;
      ThreadPool pool(threads);
      AttentionArgs args = {};
      args.kv = &kv;
      args.spans = spans;
      args.heads = AttentionCount::kHeads;
      attention({&table, &pool}, args);
      for (const auto& head : AttentionCount::counts)
        for (const std::atomic<int>& count : head) ASSERT_EQ(count, 1);
    }
  }
}

// A table that counts how often each row is rotated and stored.
struct StoreCount {
  static constexpr int kRows = 90;
  static inline std::atomic<int> rotated[kRows];
  static inline std::atomic<int> stored[kRows];
  static void rope(const RopeArgs& args) {
    for (std::int64_t row = args.row_begin; row < args.row_end; ++row) ++rotated[row];
  }
  static void kv_store(const KvStoreArgs& args) {
    // In this test position = row + 5.
    EXPECT_EQ(args.span.first_position, args.span.first_row + 5);
    for (int row = args.span.first_row; row < args.span.first_row + args.span.rows; ++row) {
      EXPECT_EQ(rotated[row], 1);
      ++stored[row];
    }
  }
  static void reset() {
    for (int row = 0; row < kRows; ++row) rotated[row] = stored[row] = 0;
  }
};

TEST(OpsTest, EveryRowIsStoredOnceForEachSpanAndRotatedBefore) {
  OpTable table = *available_targets().front();
  table.rope = StoreCount::rope;
  table.kv_store = StoreCount::kv_store;
  TestRandom random(9);
  for (int round = 0; round < 50; ++round) {
    const std::int32_t rows = random.integer(1, StoreCount::kRows);
    std::vector<SequenceSpan> spans, extra;
    std::vector<int> places(StoreCount::kRows, 0);
    for (std::int32_t row = 0; row < rows;) {
      const std::int32_t count = std::min(rows - row, random.integer(1, 9));
      spans.push_back({.block_table = nullptr, .first_position = row + 5, .first_row = row, .rows = count});
      if (random.integer(0, 2) == 0) extra.push_back(spans.back());
      for (std::int32_t r = row; r < row + count; ++r)
        places[static_cast<std::size_t>(r)] = 1 + (!extra.empty() && extra.back().first_row == row);
      row += count;
    }
    for (const int threads : {1, 2, 5}) {
      StoreCount::reset();
      ThreadPool pool(threads);
      const Context ctx = {&table, &pool};
      RopeArgs rope = {};
      rope.row_end = rows;
      rope_and_store(ctx, rope, {}, spans);
      kv_store(ctx, {}, extra);
      for (std::size_t row = 0; row < places.size(); ++row) ASSERT_EQ(StoreCount::stored[row], places[row]);
    }
  }
}

TEST(OpsTest, FixedPointAddReportsAnOverflowInAnyShare) {
  std::vector<float> x(20000, 1.0F);
  std::vector<std::int64_t> sum(x.size());
  ThreadPool pool(3);
  const Context ctx = {available_targets().front(), &pool};
  EXPECT_TRUE(fixed_point_add(ctx, sum.data(), x.data(), std::ssize(x)));
  EXPECT_TRUE(std::ranges::all_of(
      sum, [](std::int64_t value) { return value == std::int64_t{1} << kFixedPointBits; }));
  for (const std::size_t at : {std::size_t{0}, x.size() / 2, x.size() - 1}) {
    std::vector<float> bad = x;
    bad[at] = 1e30F;
    EXPECT_FALSE(fixed_point_add(ctx, sum.data(), bad.data(), std::ssize(bad)));
  }
}

TEST(OpsTest, SquaredNormsOfBlocksDoNotDependOnTheTeam) {
  std::vector<std::int64_t> grad(static_cast<std::size_t>(3 * kNormBlock + 100));
  TestRandom random(5);
  for (std::int64_t& value : grad) value = std::int64_t{random.integer(-1000000, 1000000)} << 12;
  std::vector<double> expected(4);
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] = available_targets().front()->squared_norm(
        grad.data() + static_cast<std::int64_t>(i) * kNormBlock, i < 3 ? kNormBlock : 100, 0x1p-36);
  for (const int threads : kTeams) {
    ThreadPool pool(threads);
    std::vector<double> blocks(4);
    squared_norms({available_targets().front(), &pool}, grad.data(), std::ssize(grad), 0x1p-36, blocks);
    EXPECT_EQ(blocks, expected);
  }
}

TEST(OpsTest, PointwiseEntriesDoNotDependOnTheTeam) {
  TestRandom random(6);
  const std::int64_t rows = 11, width = 48;
  const std::vector<float> x = random.reals(rows * width);
  const std::vector<float> gain = random.reals(width);
  expect_same_for_all_teams([&](const Context& ctx) {
    std::vector<float> y(x.size(), 9.0F);
    rms_norm(ctx, {.x = x.data(),
                   .ld = width,
                   .weight = gain.data(),
                   .eps = 1e-5F,
                   .width = width,
                   .y = y.data(),
                   .row_begin = 0,
                   .row_end = rows});
    std::vector<float> activated(rows * width / 2, 9.0F);
    SwigluArgs args = {};
    args.gate = y.data();
    args.up = y.data() + width / 2;
    args.ld_gate_up = width;
    args.y = activated.data();
    args.ldy = args.width = width / 2;
    args.row_end = rows;
    swiglu(ctx, args);
    add(ctx, activated.data(), y.data(), std::ssize(activated));
    y.insert(y.end(), activated.begin(), activated.end());
    return y;
  });
}

TEST(OpsTest, ReadAllIsTheExclusiveOrOfTheWordsOnEveryTarget) {
  AlignedBuffer<std::uint64_t> words(32 * 17);
  std::uint64_t expected = 0;
  for (std::size_t i = 0; i < words.size(); ++i) expected ^= words[i] = (i + 1) * 0x9E3779B97F4A7C15U;
  for_each_target([&](const OpTable& target) {
    EXPECT_EQ(target.read_all(reinterpret_cast<const std::byte*>(words.data()), words.bytes()), expected);
  });
}

TEST(OpsTest, MachineLimitsArePositive) {
  ThreadPool pool(2);
  const Context ctx = {available_targets().front(), &pool};
  EXPECT_GT(measure_read_bandwidth(ctx, 1 << 20), 0);
  EXPECT_GT(measure_fma_peak(ctx), 0);
}

}  // namespace
}  // namespace rondo::kernels
