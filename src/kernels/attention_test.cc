// attention and kv_store of every target against the plain loops, and what the contract promises of them.
#include "kernels/attention_test.h"

#include <cmath>
#include <string_view>

#include "kernels/op_table_test.h"

namespace rondo::kernels {
namespace {

constexpr std::int32_t kHeadDims[] = {2, 8, 16, 26, 64, 80, 96, 128};
constexpr std::int32_t kGroups[] = {1, 3, 4, 8};

AttentionShape random_shape(TestRandom& random) {
  return {.dtype = kAllDTypes[random.integer(0, 2)],
          .head_dim = kHeadDims[random.integer(0, 7)],
          .kv_heads = random.integer(1, 2),
          .group = kGroups[random.integer(0, 3)]};
}

// A batch: queries and results with leading dimensions of their own.
struct Batch {
  AttentionShape shape;
  PagedCache cache;
  std::vector<OwnedSpan> spans;
  std::int32_t rows = 0;
  std::vector<float> q;

  Batch(const AttentionShape& batch_shape, std::int32_t blocks, std::uint32_t seed)
      : shape(batch_shape), cache(shape, blocks, seed) {}

  std::int64_t ldq() const { return shape.q_width() + 3; }
  std::int64_t ldo() const { return shape.q_width() + 1; }
  std::size_t out_size() const { return static_cast<std::size_t>(rows * ldo()); }
  std::size_t stats_size() const { return static_cast<std::size_t>(rows * shape.heads() * 2); }

  void add_span(std::int32_t first_position, std::int32_t count, std::vector<std::int32_t> prefix = {}) {
    spans.push_back({.blocks = cache.table(first_position + count, std::move(prefix)),
                     .first_position = first_position,
                     .first_row = rows,
                     .rows = count});
    rows += count;
  }
  void draw_queries(TestRandom& random, float size = 1.0F) {
    q = random.reals(static_cast<std::size_t>(rows * ldq()), size);
  }
};

struct Results {
  std::vector<float> out;
  std::vector<float> stats;

  explicit Results(const Batch& batch) : out(batch.out_size(), -7.0F), stats(batch.stats_size(), -7.0F) {}
};

// Computes all KV heads of `spans` into `results`.
void run(const OpTable& table, const Batch& batch, std::span<const SequenceSpan> spans, Results& results) {
  for (std::int32_t head = 0; head < batch.shape.kv_heads; ++head) {
    table.attention({.kv = &batch.cache.view(),
                     .spans = spans,
                     .kv_head = head,
                     .heads = batch.shape.heads(),
                     .scale = 1.0F / std::sqrt(static_cast<float>(batch.shape.head_dim)),
                     .q = batch.q.data(),
                     .ldq = batch.ldq(),
                     .out = results.out.data(),
                     .ldo = batch.ldo(),
                     .stats = results.stats.data()});
  }
}

Results run_all(const OpTable& table, const Batch& batch) {
  Results results(batch);
  run(table, batch, views_of(batch.spans), results);
  return results;
}

void expect_same(const Results& actual, const Results& expected) {
  expect_same_bits(actual.out, expected.out);
  expect_same_bits(actual.stats, expected.stats);
}

// Spans of one row (decoding) and of many, at random positions, some of which share leading blocks.
Batch random_batch(TestRandom& random, std::uint32_t seed) {
  Batch batch(random_shape(random), 64, seed);
  const std::vector<std::int32_t> prefix = batch.cache.table(random.integer(0, 2) * kAttentionBlock);
  const int count = random.integer(1, 6);
  for (int i = 0; i < count; ++i) {
    const bool shares = random.integer(0, 1) == 1;
    const int rows = random.integer(0, 1) == 0 ? 1 : random.integer(1, 40);
    batch.add_span(random.integer(0, 150), rows, shares ? prefix : std::vector<std::int32_t>());
  }
  batch.draw_queries(random, 4.0F);
  return batch;
}

TEST(AttentionTest, RandomBatchesEqualThePlainLoop) {
  TestRandom random(1);
  for (std::uint32_t i = 0; i < 20 && !testing::Test::HasFailure(); ++i) {
    const Batch batch = random_batch(random, i);
    SCOPED_TRACE(testing::Message() << dtype_name(batch.shape.dtype) << " head_dim " << batch.shape.head_dim
                                    << " group " << batch.shape.group << " spans " << batch.spans.size());
    const Results expected = run_all(reference::table(), batch);
    for_each_target([&](const OpTable& target) {
      // The portable target is slow, above all under a sanitizer.
      if (std::string_view(target.name) == "portable" && i % 4 != 0) return;
      expect_same(run_all(target, batch), expected);
    });
  }
}

TEST(AttentionTest, TheLargestHeadEqualsThePlainLoop) {
  TestRandom random(2);
  for (const DType dtype : kAllDTypes) {
    Batch batch({.dtype = dtype, .head_dim = kMaxHeadDim, .group = 5}, 8, 2);
    batch.add_span(70, 7);
    batch.draw_queries(random);
    const Results expected = run_all(reference::table(), batch);
    for_each_target([&](const OpTable& target) { expect_same(run_all(target, batch), expected); });
  }
}

// Scores far apart: most exps underflow to zero, whole blocks weigh nothing.
TEST(AttentionTest, ExtremeScoresEqualThePlainLoop) {
  TestRandom random(3);
  Batch batch({.head_dim = 64, .group = 3}, 16, 3);
  batch.add_span(0, 150);
  batch.draw_queries(random, 500.0F);
  const Results expected = run_all(reference::table(), batch);
  for_each_target([&](const OpTable& target) { expect_same(run_all(target, batch), expected); });
}

TEST(AttentionTest, CuttingASpanChangesNothing) {
  for_each_target([](const OpTable& target) {
    TestRandom random(4);
    Batch batch({.head_dim = 80, .kv_heads = 2, .group = 3}, 16, 4);
    batch.add_span(30, 150);
    batch.draw_queries(random, 3.0F);
    const Results whole = run_all(target, batch);
    Results pieces(batch);
    for (std::int32_t done = 0; done < batch.rows;) {
      SequenceSpan piece = batch.spans[0].span();
      piece.first_position += done;
      piece.first_row += done;
      piece.rows = std::min(random.integer(1, 40), batch.rows - done);
      run(target, batch, {&piece, 1}, pieces);
      done += piece.rows;
    }
    expect_same(pieces, whole);
  });
}

TEST(AttentionTest, NeighboursAndTheirOrderChangeNothing) {
  for_each_target([](const OpTable& target) {
    TestRandom random(5);
    Batch batch({.head_dim = 64, .group = 3}, 64, 5);
    const std::vector<std::int32_t> prompt = batch.cache.table(2 * kAttentionBlock);
    for (int i = 0; i < 20; ++i) batch.add_span(random.integer(128, 200), 1, prompt);
    batch.draw_queries(random, 3.0F);
    const Results together = run_all(target, batch);
    Results alone(batch);
    for (const OwnedSpan& span : batch.spans) {
      const SequenceSpan view = span.span();
      run(target, batch, {&view, 1}, alone);
    }
    expect_same(alone, together);
    std::vector<SequenceSpan> backwards = views_of(batch.spans);
    std::reverse(backwards.begin(), backwards.end());
    Results reversed(batch);
    run(target, batch, backwards, reversed);
    expect_same(reversed, together);
  });
}

TEST(AttentionTest, SlotsBeyondTheRowsPositionChangeNothing) {
  for_each_target([](const OpTable& target) {
    TestRandom random(6);
    Batch batch({.head_dim = 64, .group = 4}, 16, 6);
    batch.add_span(85, 7);
    batch.draw_queries(random);
    const Results before = run_all(target, batch);
    batch.cache.refill(batch.spans[0].blocks[1], 85 + 7 - kAttentionBlock);
    expect_same(run_all(target, batch), before);
  });
}

// One row against softmax in double precision. Inputs are below 1 in size and weights sum to 1, so the error
// of an output is below that of a few roundings per position and head dimension.
TEST(AttentionTest, AgreesWithSoftmaxInDoublePrecision) {
  for_each_target([](const OpTable& target) {
    TestRandom random(7);
    Batch batch({.dtype = DType::kF16, .head_dim = 64, .kv_heads = 2, .group = 2}, 16, 7);
    batch.add_span(400, 1);
    batch.draw_queries(random);
    const Results results = run_all(target, batch);
    for (std::int32_t head = 0; head < batch.shape.heads(); ++head) {
      const std::int32_t kv_head = head / batch.shape.group;
      std::vector<double> expected(64, 0.0);
      double total = 0;
      for (std::int32_t p = 0; p <= 400; ++p) {
        const std::int32_t block = batch.spans[0].blocks[static_cast<std::size_t>(p / kAttentionBlock)];
        const std::int32_t slot = p % kAttentionBlock;
        double score = 0;
        for (std::int32_t d = 0; d < 64; ++d)
          score += static_cast<double>(batch.q[static_cast<std::size_t>(head * 64 + d)]) *
                   batch.cache.key(block, kv_head, slot, d);
        const double weight = std::exp(score / 8.0);
        total += weight;
        for (std::int32_t d = 0; d < 64; ++d)
          expected[static_cast<std::size_t>(d)] += weight * batch.cache.value(block, kv_head, slot, d);
      }
      for (std::size_t d = 0; d < 64; ++d)
        EXPECT_NEAR(results.out[static_cast<std::size_t>(head) * 64 + d], expected[d] / total, 1e-6);
    }
  });
}

TEST(AttentionTest, StatsMayBeLeftOut) {
  for_each_target([](const OpTable& target) {
    TestRandom random(8);
    Batch batch({.head_dim = 16}, 4, 8);
    batch.add_span(3, 2);
    batch.draw_queries(random);
    const std::vector<SequenceSpan> spans = views_of(batch.spans);
    Results with(batch);
    run(target, batch, spans, with);
    Results without(batch);
    target.attention({.kv = &batch.cache.view(),
                      .spans = spans,
                      .kv_head = 0,
                      .heads = 1,
                      .scale = 0.25F,
                      .q = batch.q.data(),
                      .ldq = batch.ldq(),
                      .out = without.out.data(),
                      .ldo = batch.ldo(),
                      .stats = nullptr});
    expect_same_bits(without.out, with.out);
  });
}

// Every byte of the cache is compared, so a write outside the span's slots shows.
TEST(AttentionTest, KvStoreEqualsThePlainLoop) {
  for_each_target([](const OpTable& target) {
    TestRandom random(9);
    for (std::uint32_t i = 0; i < 20 && !testing::Test::HasFailure(); ++i) {
      const AttentionShape shape = random_shape(random);
      PagedCache actual(shape, 8, i);
      PagedCache expected(shape, 8, i);
      const OwnedSpan span = {actual.table(300), random.integer(0, 150), 2, random.integer(1, 150)};
      const std::int64_t ld = shape.kv_width() + 5;
      const auto size = static_cast<std::size_t>((span.first_row + span.rows) * ld);
      const std::vector<float> k = random.reals(size, 3.0F);
      const std::vector<float> v = random.reals(size, 3.0F);
      KvStoreArgs args = {.kv = &actual.view(), .span = span.span(), .k = k.data(), .v = v.data(), .ld = ld};
      target.kv_store(args);
      args.kv = &expected.view();
      reference::table().kv_store(args);
      ASSERT_TRUE(std::equal(actual.bytes().begin(), actual.bytes().end(), expected.bytes().begin()));
    }
  });
}

}  // namespace
}  // namespace rondo::kernels
