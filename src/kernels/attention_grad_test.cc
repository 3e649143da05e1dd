// attention_grad of every target against the plain loops, and against finite differences in double precision.
#include <cmath>
#include <string_view>

#include "kernels/attention_test.h"
#include "kernels/op_table_test.h"

namespace rondo::kernels {
namespace {

// A prompt and its samples: the samples share the prompt's full blocks and own a copy of its last, partial
// one. The rows are the prompt's, then the samples' in order.
struct Unit {
  AttentionShape shape;
  PagedCache cache;
  std::vector<OwnedSpan> spans;
  std::vector<std::int32_t> position_rows;
  std::vector<std::int64_t> position_begin;
  std::int32_t rows = 0;
  std::vector<float> q, dout, out, stats;

  Unit(const AttentionShape& unit_shape, std::int32_t prompt, std::span<const std::int32_t> samples,
       std::uint32_t seed)
      : shape(unit_shape), cache(shape, 40, seed) {
    add_span(cache.table(prompt), 0, prompt);
    const std::vector<std::int32_t> table = spans[0].blocks;
    const std::int32_t full = prompt / kAttentionBlock;
    for (const std::int32_t count : samples) {
      std::vector<std::int32_t> blocks = cache.table(prompt + count, {table.begin(), table.begin() + full});
      if (prompt % kAttentionBlock != 0)
        cache.copy(table[static_cast<std::size_t>(full)], blocks[static_cast<std::size_t>(full)],
                   prompt % kAttentionBlock);
      add_span(std::move(blocks), prompt, count);
    }
  }

  std::int64_t ld() const { return shape.q_width() + 2; }
  std::int64_t ldkv() const { return shape.kv_width() + 3; }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(shape.head_dim)); }

  // Fills queries and output gradients, and runs the forward pass.
  void prepare(const OpTable& table, TestRandom& random) {
    q = random.reals(static_cast<std::size_t>(rows * ld()), 3.0F);
    dout = random.reals(q.size());
    out.assign(q.size(), 0.0F);
    stats.assign(static_cast<std::size_t>(rows * shape.heads() * 2), 0.0F);
    const std::vector<SequenceSpan> views = views_of(spans);
    for (std::int32_t head = 0; head < shape.kv_heads; ++head) {
      table.attention({.kv = &cache.view(),
                       .spans = views,
                       .kv_head = head,
                       .heads = shape.heads(),
                       .scale = scale(),
                       .q = q.data(),
                       .ldq = ld(),
                       .out = out.data(),
                       .ldo = ld(),
                       .stats = stats.data()});
    }
  }

 private:
  void add_span(std::vector<std::int32_t> blocks, std::int32_t first_position, std::int32_t count) {
    position_begin.push_back(static_cast<std::int64_t>(position_rows.size()));
    for (std::int32_t p = 0; p < first_position; ++p) position_rows.push_back(p);
    for (std::int32_t p = 0; p < count; ++p) position_rows.push_back(rows + p);
    spans.push_back({std::move(blocks), first_position, rows, count});
    rows += count;
  }
};

struct Gradients {
  std::vector<float> dq, dk, dv;
};

Gradients run(const OpTable& table, const Unit& unit) {
  const auto kv_size = static_cast<std::size_t>(unit.rows * unit.ldkv());
  Gradients result = {std::vector<float>(unit.q.size(), -7.0F), std::vector<float>(kv_size, -7.0F),
                      std::vector<float>(kv_size, -7.0F)};
  AlignedBuffer<std::byte> scratch(attention_grad_scratch(unit.rows, unit.shape.head_dim, unit.shape.group));
  const std::vector<SequenceSpan> spans = views_of(unit.spans);
  for (std::int32_t head = 0; head < unit.shape.kv_heads; ++head) {
    table.attention_grad({.kv = &unit.cache.view(),
                          .spans = spans,
                          .position_rows = unit.position_rows.data(),
                          .span_position_begin = unit.position_begin.data(),
                          .kv_head = head,
                          .heads = unit.shape.heads(),
                          .scale = unit.scale(),
                          .q = unit.q.data(),
                          .ldq = unit.ld(),
                          .out = unit.out.data(),
                          .dout = unit.dout.data(),
                          .ldo = unit.ld(),
                          .stats = unit.stats.data(),
                          .dq = result.dq.data(),
                          .lddq = unit.ld(),
                          .dk = result.dk.data(),
                          .dv = result.dv.data(),
                          .lddkv = unit.ldkv(),
                          .rows = unit.rows,
                          .scratch = scratch.span()});
  }
  return result;
}

void expect_same(const Gradients& actual, const Gradients& expected) {
  expect_same_bits(actual.dq, expected.dq);
  expect_same_bits(actual.dk, expected.dk);
  expect_same_bits(actual.dv, expected.dv);
}

TEST(AttentionGradTest, RandomUnitsEqualThePlainLoop) {
  constexpr std::int32_t kHeadDims[] = {2, 8, 16, 26, 64, 80, 128};
  constexpr std::int32_t kGroups[] = {1, 3, 4};
  TestRandom random(1);
  for (std::uint32_t i = 0; i < 12 && !testing::Test::HasFailure(); ++i) {
    const AttentionShape shape = {.dtype = kAllDTypes[i % 3],
                                  .head_dim = kHeadDims[random.integer(0, 6)],
                                  .kv_heads = random.integer(1, 2),
                                  .group = kGroups[random.integer(0, 2)]};
    std::vector<std::int32_t> samples(static_cast<std::size_t>(random.integer(0, 3)));
    for (std::int32_t& count : samples) count = random.integer(1, 50);
    Unit unit(shape, random.integer(1, 130), samples, i);
    unit.prepare(reference::table(), random);
    SCOPED_TRACE(testing::Message() << dtype_name(shape.dtype) << " head_dim " << shape.head_dim << " group "
                                    << shape.group << " samples " << samples.size());
    const Gradients expected = run(reference::table(), unit);
    for_each_target([&](const OpTable& target) {
      // The portable target is slow, above all under a sanitizer.
      if (std::string_view(target.name) == "portable" && i % 4 != 0) return;
      expect_same(run(target, unit), expected);
    });
  }
}

TEST(AttentionGradTest, PromptsThatEndWithABlockEqualThePlainLoop) {
  TestRandom random(2);
  constexpr std::int32_t kSamples[] = {64, 1, 5};
  Unit unit({.head_dim = 64, .group = 3}, kAttentionBlock, kSamples, 2);
  unit.prepare(reference::table(), random);
  const Gradients expected = run(reference::table(), unit);
  for_each_target([&](const OpTable& target) { expect_same(run(target, unit), expected); });
}

// loss = sum of dout * out as a function of q and of each row's key and value, in double precision.
class DoubleModel final {
 public:
  explicit DoubleModel(const Unit& unit) : unit_(unit), q_(unit.q.begin(), unit.q.end()) {
    const auto size = static_cast<std::size_t>(unit.rows * unit.shape.kv_width());
    k_.resize(size);
    v_.resize(size);
    for (std::size_t i = 0; i < unit.spans.size(); ++i) load(i);
  }

  double loss() const {
    double total = 0;
    for (std::size_t i = 0; i < unit_.spans.size(); ++i)
      for (std::int32_t row = 0; row < unit_.spans[i].rows; ++row)
        for (std::int32_t head = 0; head < unit_.shape.heads(); ++head) total += row_loss(i, row, head);
    return total;
  }
  double& q(std::int64_t row, std::int64_t column) {
    return q_[static_cast<std::size_t>(row * unit_.ld() + column)];
  }
  double& k(std::int64_t row, std::int64_t column) { return k_[kv_index(row, column)]; }
  double& v(std::int64_t row, std::int64_t column) { return v_[kv_index(row, column)]; }

 private:
  std::size_t kv_index(std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(row * unit_.shape.kv_width() + column);
  }
  std::int32_t row_of(std::size_t span, std::int32_t position) const {
    return unit_.position_rows[static_cast<std::size_t>(unit_.position_begin[span] + position)];
  }
  void load(std::size_t index) {
    const OwnedSpan& span = unit_.spans[index];
    for (std::int32_t p = span.first_position; p < span.first_position + span.rows; ++p) {
      const std::int32_t block = span.blocks[static_cast<std::size_t>(p / kAttentionBlock)];
      for (std::int32_t c = 0; c < unit_.shape.kv_width(); ++c) {
        const std::int32_t head = c / unit_.shape.head_dim;
        const std::int32_t d = c % unit_.shape.head_dim;
        k_[kv_index(row_of(index, p), c)] = unit_.cache.key(block, head, p % kAttentionBlock, d);
        v_[kv_index(row_of(index, p), c)] = unit_.cache.value(block, head, p % kAttentionBlock, d);
      }
    }
  }
  double row_loss(std::size_t index, std::int32_t row, std::int32_t head) const {
    const OwnedSpan& span = unit_.spans[index];
    const std::int64_t head_dim = unit_.shape.head_dim;
    const std::int64_t at = (span.first_row + row) * unit_.ld() + head * head_dim;
    const std::int64_t kv_column = head / unit_.shape.group * head_dim;
    double weights = 0;
    double weighted = 0;
    for (std::int32_t p = 0; p <= span.first_position + row; ++p) {
      double score = 0;
      double gain = 0;
      for (std::int64_t d = 0; d < head_dim; ++d) {
        const std::size_t entry = kv_index(row_of(index, p), kv_column + d);
        score += q_[static_cast<std::size_t>(at + d)] * k_[entry];
        gain += static_cast<double>(unit_.dout[static_cast<std::size_t>(at + d)]) * v_[entry];
      }
      const double weight = std::exp(score * static_cast<double>(unit_.scale()));
      weights += weight;
      weighted += weight * gain;
    }
    return weighted / weights;
  }

  const Unit& unit_;
  std::vector<double> q_, k_, v_;
};

// The central difference with a step of 1e-4 is off by about 1e-8 times the third derivative, and by 1e-16 *
// loss / 1e-4 through rounding; the gradient itself by a few fp32 roundings per summand. Gradients are of the
// order of 1.
TEST(AttentionGradTest, EqualsFiniteDifferencesInDoublePrecision) {
  constexpr double kStep = 1e-4;
  constexpr double kTolerance = 1e-5;
  TestRandom random(3);
  constexpr std::int32_t kSamples[] = {9, 13};
  Unit unit({.dtype = DType::kF16, .head_dim = 8, .kv_heads = 2, .group = 2}, 70, kSamples, 3);
  const OpTable& table = *available_targets().front();
  unit.prepare(table, random);
  const Gradients gradients = run(table, unit);
  DoubleModel model(unit);
  const auto slope = [&](double& x) {
    const double centre = x;
    x = centre + kStep;
    const double above = model.loss();
    x = centre - kStep;
    const double below = model.loss();
    x = centre;
    return (above - below) / (2 * kStep);
  };
  for (int i = 0; i < 100; ++i) {
    const std::int32_t row = random.integer(0, unit.rows - 1);
    const std::int32_t q_column = random.integer(0, static_cast<int>(unit.shape.q_width()) - 1);
    const std::int32_t kv_column = random.integer(0, static_cast<int>(unit.shape.kv_width()) - 1);
    const auto kv_at = static_cast<std::size_t>(row * unit.ldkv() + kv_column);
    EXPECT_NEAR(gradients.dq[static_cast<std::size_t>(row * unit.ld() + q_column)],
                slope(model.q(row, q_column)), kTolerance);
    EXPECT_NEAR(gradients.dk[kv_at], slope(model.k(row, kv_column)), kTolerance);
    EXPECT_NEAR(gradients.dv[kv_at], slope(model.v(row, kv_column)), kTolerance);
  }
}

TEST(AttentionGradTest, ScratchCoversTheQueriesAndOneBlock) {
  EXPECT_GE(attention_grad_scratch(10, 64, 3), 10U * 3U * 64U * 3U * sizeof(float));
  EXPECT_EQ(attention_grad_scratch(10, 64, 3) % 64, 0U);
}

}  // namespace
}  // namespace rondo::kernels
