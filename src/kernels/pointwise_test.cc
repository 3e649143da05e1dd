// Norms, rotary embedding, gated MLP and addition: every target against the plain loops, and the plain
// gradients against finite differences in fp64.
#include <algorithm>
#include <cmath>
#include <functional>

#include "kernels/op_table_test.h"

namespace rondo::kernels {
namespace {

using Row = std::vector<double>;

// The gradient of sum_i dy[i] * f(x)[i] by central differences: error O(step^2), far below fp32's.
Row finite_difference(const std::function<Row(const Row&)>& f, Row x, const std::vector<float>& dy) {
  constexpr double kStep = 1e-5;
  const auto loss = [&] {
    const Row y = f(x);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(dy[i]) * y[i];
    return sum;
  };
  Row gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + kStep;
    const double above = loss();
    x[i] = at - kStep;
    gradient[i] = (above - loss()) / (2 * kStep);
    x[i] = at;
  }
  return gradient;
}

Row widen(std::span<const float> x) {
  return {x.begin(), x.end()};
}

// Values here are O(1) and pass through about ten fp32 roundings of 2^-24 each.
constexpr double kTolerance = 4e-6;

void expect_near(std::span<const float> actual, const Row& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], kTolerance * std::max(1.0, std::abs(expected[i]))) << "element " << i;
}

// Runs `op(table, buffer)` on a copy of `initial` for every target and for the reference; all must agree.
template <class Op>
void expect_same_on_every_target(const std::vector<float>& initial, const Op& op) {
  std::vector<float> expected = initial;
  op(reference::table(), expected.data());
  for_each_target([&](const OpTable& target) {
    std::vector<float> actual = initial;
    op(target, actual.data());
    expect_same_bits(actual, expected);
  });
}

struct NormCase {
  std::int64_t rows, width, ld;
  std::vector<float> x, dy, weight;

  explicit NormCase(TestRandom& random)
      : rows(random.integer(1, 5)), width(random.integer(1, 70)), ld(width + random.integer(0, 5)) {
    const auto size = static_cast<std::size_t>(rows * ld);
    x = random.reals(size, 3.0F);
    dy = random.reals(size);
    weight = random.reals(static_cast<std::size_t>(width), 2.0F);
  }
  RmsNormGradArgs grad_args(float* dx, float* inverse_rms) const {
    return {.x = x.data(),
            .dy = dy.data(),
            .ld = ld,
            .weight = weight.data(),
            .eps = 1e-5F,
            .width = width,
            .dx = dx,
            .inverse_rms = inverse_rms,
            .row_begin = 0,
            .row_end = rows};
  }
};

TEST(PointwiseTest, RmsNormEqualsThePlainLoop) {
  TestRandom random(1);
  for (int trial = 0; trial < 100; ++trial) {
    const NormCase c(random);
    const std::int64_t first = random.integer(0, static_cast<int>(c.rows));
    expect_same_on_every_target(std::vector<float>(c.x.size(), 7.0F), [&](const OpTable& t, float* y) {
      t.rms_norm({c.x.data(), c.ld, c.weight.data(), 1e-5F, c.width, y, first, c.rows});
    });
  }
}

TEST(PointwiseTest, RmsNormGradEqualsThePlainLoop) {
  TestRandom random(2);
  for (int trial = 0; trial < 100; ++trial) {
    const NormCase c(random);
    const auto rows = static_cast<std::size_t>(c.rows);
    std::vector<float> initial = random.reals(c.x.size() + rows);  // dx, then the inverse norms
    expect_same_on_every_target(
        initial, [&](const OpTable& t, float* out) { t.rms_norm_grad(c.grad_args(out, out + c.x.size())); });
  }
}

TEST(PointwiseTest, RmsNormWeightGradEqualsThePlainLoopForAnyColumnSplit) {
  TestRandom random(3);
  for (int trial = 0; trial < 100; ++trial) {
    const NormCase c(random);
    const std::vector<float> inverse_rms = random.reals(static_cast<std::size_t>(c.rows));
    const auto run = [&](const OpTable& t, float* dweight, std::int64_t begin, std::int64_t end) {
      t.rms_norm_weight_grad(
          {c.x.data(), c.dy.data(), c.ld, inverse_rms.data(), c.rows, dweight, begin, end});
    };
    const std::vector<float> initial = random.reals(static_cast<std::size_t>(c.width));
    std::vector<float> expected = initial;
    run(reference::table(), expected.data(), 0, c.width);
    const std::int64_t cut = random.integer(0, static_cast<int>(c.width));
    for_each_target([&](const OpTable& t) {
      std::vector<float> actual = initial;
      run(t, actual.data(), cut, c.width);
      run(t, actual.data(), 0, cut);
      expect_same_bits(actual, expected);
    });
  }
}

TEST(PointwiseTest, RmsNormGradMatchesFiniteDifferences) {
  TestRandom random(4);
  constexpr std::size_t kWidth = 37;
  const auto x = random.reals(kWidth, 2.0F), dy = random.reals(kWidth), weight = random.reals(kWidth, 2.0F);
  const auto norm = [](const Row& in, const Row& scale) {
    double squares = 0;
    for (const double v : in) squares += v * v;
    Row y(in.size());
    for (std::size_t i = 0; i < in.size(); ++i)
      y[i] = in[i] / std::sqrt(squares / static_cast<double>(in.size()) + 1e-5) * scale[i];
    return y;
  };
  std::vector<float> dx(kWidth), dweight(kWidth), r(1);
  const OpTable& t = reference::table();
  t.rms_norm_grad({x.data(), dy.data(), kWidth, weight.data(), 1e-5F, kWidth, dx.data(), r.data(), 0, 1});
  t.rms_norm_weight_grad({x.data(), dy.data(), kWidth, r.data(), 1, dweight.data(), 0, kWidth});
  expect_near(dx, finite_difference([&](const Row& v) { return norm(v, widen(weight)); }, widen(x), dy));
  expect_near(dweight, finite_difference([&](const Row& v) { return norm(widen(x), v); }, widen(weight), dy));
}

TEST(PointwiseTest, RmsNormGradAddsToWhatIsThere) {
  TestRandom random(5);
  const NormCase c(random);
  std::vector<float> fresh(c.x.size()), added(c.x.size(), 0.5F), r(static_cast<std::size_t>(c.rows));
  const OpTable& t = *available_targets().front();
  t.rms_norm_grad(c.grad_args(fresh.data(), r.data()));
  t.rms_norm_grad(c.grad_args(added.data(), r.data()));
  for (std::int64_t row = 0; row < c.rows; ++row)
    for (std::int64_t i = row * c.ld; i < row * c.ld + c.width; ++i)
      EXPECT_EQ(added[static_cast<std::size_t>(i)], 0.5F + fresh[static_cast<std::size_t>(i)]);
}

struct RopeCase {
  std::int32_t heads, head_dim;
  std::int64_t rows, ld;
  std::vector<float> cosine, sine, x;
  std::vector<std::int32_t> positions;

  explicit RopeCase(TestRandom& random)
      : heads(random.integer(1, 4)), head_dim(2 * random.integer(1, 40)), rows(random.integer(1, 4)) {
    ld = heads * head_dim + random.integer(0, 3);
    constexpr std::int32_t kPositions = 9;
    for (int i = 0; i < kPositions * head_dim / 2; ++i) {
      const float angle = random.real(3.0F);
      cosine.push_back(std::cos(angle));
      sine.push_back(std::sin(angle));
    }
    for (int row = 0; row < rows; ++row) positions.push_back(random.integer(0, kPositions - 1));
    x = random.reals(static_cast<std::size_t>(rows * ld), 2.0F);
  }
  RopeArgs args(float* buffer, bool inverse) const {
    return {buffer, ld, heads, head_dim, cosine.data(), sine.data(), positions.data(), inverse, 0, rows};
  }
};

TEST(PointwiseTest, RopeEqualsThePlainLoop) {
  TestRandom random(6);
  for (int trial = 0; trial < 100; ++trial) {
    const RopeCase c(random);
    for (const bool inverse : {false, true})
      expect_same_on_every_target(c.x, [&](const OpTable& t, float* x) { t.rope(c.args(x, inverse)); });
  }
}

TEST(PointwiseTest, InverseRopeIsTheGradient) {
  TestRandom random(7);
  const RopeCase c(random);
  std::vector<float> y = c.x;
  const std::vector<float> dy = random.reals(c.x.size());
  std::vector<float> dx = dy;
  reference::table().rope(c.args(y.data(), false));
  reference::table().rope(c.args(dx.data(), true));
  // A rotation R: <dy, R x> = <R^T dy, x>.
  double left = 0, right = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    left += static_cast<double>(dy[i]) * y[i];
    right += static_cast<double>(dx[i]) * c.x[i];
  }
  EXPECT_NEAR(left, right, kTolerance * static_cast<double>(y.size()));
  reference::table().rope(c.args(y.data(), true));
  expect_near(y, widen(c.x));
}

struct SwigluCase {
  std::int64_t rows, width, ld, ldy;
  std::vector<float> gate_up, dy;

  explicit SwigluCase(TestRandom& random)
      : rows(random.integer(1, 4)),
        width(random.integer(1, 70)),
        ld(2 * width + random.integer(0, 3)),
        ldy(width + random.integer(0, 3)),
        gate_up(random.reals(static_cast<std::size_t>(rows * ld), 6.0F)),
        dy(random.reals(static_cast<std::size_t>(rows * ldy), 2.0F)) {}
  SwigluArgs args(float* y, float* dgate_up) const {
    return {.gate = gate_up.data(),
            .up = gate_up.data() + width,
            .ld_gate_up = ld,
            .y = y,
            .dy = dy.data(),
            .dgate = dgate_up,
            .dup = dgate_up == nullptr ? nullptr : dgate_up + width,
            .ldy = ldy,
            .width = width,
            .row_begin = 0,
            .row_end = rows};
  }
};

TEST(PointwiseTest, SwigluEqualsThePlainLoop) {
  TestRandom random(8);
  for (int trial = 0; trial < 100; ++trial) {
    const SwigluCase c(random);
    expect_same_on_every_target(std::vector<float>(c.dy.size(), 7.0F),
                                [&](const OpTable& t, float* y) { t.swiglu(c.args(y, nullptr)); });
    expect_same_on_every_target(std::vector<float>(c.gate_up.size(), 7.0F),
                                [&](const OpTable& t, float* d) { t.swiglu_grad(c.args(nullptr, d)); });
  }
}

TEST(PointwiseTest, SwigluGradMayOverwriteItsInput) {
  TestRandom random(9);
  const SwigluCase c(random);
  std::vector<float> apart = c.gate_up;
  reference::table().swiglu_grad(c.args(nullptr, apart.data()));
  for_each_target([&](const OpTable& t) {
    std::vector<float> alias = c.gate_up;
    SwigluArgs args = c.args(nullptr, alias.data());
    args.gate = alias.data();
    args.up = alias.data() + c.width;
    t.swiglu_grad(args);
    expect_same_bits(alias, apart);
  });
}

TEST(PointwiseTest, SwigluGradMatchesFiniteDifferences) {
  TestRandom random(10);
  constexpr std::size_t kWidth = 19;
  const auto gate_up = random.reals(2 * kWidth, 3.0F), dy = random.reals(kWidth);
  std::vector<float> gradient(2 * kWidth);
  reference::table().swiglu_grad({.gate = gate_up.data(),
                                  .up = gate_up.data() + kWidth,
                                  .ld_gate_up = 2 * kWidth,
                                  .y = nullptr,
                                  .dy = dy.data(),
                                  .dgate = gradient.data(),
                                  .dup = gradient.data() + kWidth,
                                  .ldy = kWidth,
                                  .width = kWidth,
                                  .row_begin = 0,
                                  .row_end = 1});
  const auto forward = [](const Row& v) {
    Row y(kWidth);
    for (std::size_t i = 0; i < kWidth; ++i) y[i] = v[i] / (1 + std::exp(-v[i])) * v[kWidth + i];
    return y;
  };
  expect_near(gradient, finite_difference(forward, widen(gate_up), dy));
}

TEST(PointwiseTest, AddEqualsThePlainLoopAndStopsAtCount) {
  TestRandom random(11);
  for (int count = 0; count < 70; ++count) {
    const auto x = random.reals(static_cast<std::size_t>(count + 3));
    expect_same_on_every_target(random.reals(x.size()),
                                [&](const OpTable& t, float* y) { t.add(y, x.data(), count); });
  }
}

}  // namespace
}  // namespace rondo::kernels
