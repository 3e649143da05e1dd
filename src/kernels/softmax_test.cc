// Softmax statistics, their gradient and the sampling weights: every target against the plain loops, and the
// gradient against finite differences in fp64.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/op_table_test.h"
#include "kernels/reference_math.h"

namespace rondo::kernels {
namespace {

constexpr float kTemperatures[] = {1.0F, 0.7F, 2.0F};

std::vector<float> fields(const SoftmaxStats& stats) {
  return {stats.max, stats.sum, stats.weighted};
}

TEST(SoftmaxTest, StatsEqualThePlainLoop) {
  TestRandom random(1);
  for (int vocab = 1; vocab < 150; ++vocab) {
    const auto logits = random.reals(static_cast<std::size_t>(vocab), 30.0F);
    for (const float temperature : kTemperatures)
      for (const std::int32_t chains : {1, 2, 4, 8}) {
        const auto expected = reference::table().softmax_stats(logits.data(), vocab, temperature, chains);
        for_each_target([&](const OpTable& t) {
          expect_same_bits(fields(t.softmax_stats(logits.data(), vocab, temperature, chains)),
                           fields(expected));
        });
      }
  }
}

TEST(SoftmaxTest, StatsAgreeWithDoublePrecision) {
  TestRandom random(2);
  const auto logits = random.reals(5000, 8.0F);
  const SoftmaxStats stats = reference::table().softmax_stats(logits.data(), 5000, 1.0F, 4);
  double sum = 0, weighted = 0;
  for (const float x : logits) {
    const double shifted = static_cast<double>(x) - stats.max;
    sum += std::exp(shifted);
    weighted += std::exp(shifted) * shifted;
  }
  // Chains of 5000 / 64 terms: each addition and exponential adds at most 2^-24 of the running sum.
  EXPECT_NEAR(stats.sum, sum, 1e-5 * sum);
  EXPECT_NEAR(stats.weighted, weighted, 1e-5 * std::abs(weighted));
}

TEST(SoftmaxTest, NegativeZeroDoesNotShowInTheMaximum) {
  for_each_target([](const OpTable& t) {
    for (std::size_t place = 0; place < 40; ++place) {
      std::vector<float> logits(40, -0.0F);
      logits[place] = 0.0F;
      expect_same_bits(fields(t.softmax_stats(logits.data(), 40, 1.0F, 1)), std::vector<float>{0, 40, 0});
    }
  });
}

TEST(SoftmaxTest, NonFiniteLogitsMakeEveryStatisticNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for_each_target([&](const OpTable& t) {
    for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()})
      for (std::size_t place = 0; place < 37; ++place) {
        std::vector<float> logits(37, 1.0F);
        logits[place] = bad;
        for (const float temperature : kTemperatures)
          for (const float field : fields(t.softmax_stats(logits.data(), 37, temperature, 2)))
            EXPECT_TRUE(std::isnan(field)) << bad << " at " << place;
      }
  });
}

TEST(SoftmaxTest, OverflowByTheTemperatureMakesEveryStatisticNaN) {
  const std::vector<std::vector<float>> rows = {{1e30F, 0.0F}, {-1e30F, 0.0F}, {2e28F, -2e28F}};
  for_each_target([&](const OpTable& t) {
    for (const auto& row : rows) {
      EXPECT_TRUE(std::isnan(t.softmax_stats(row.data(), 2, 1e-10F, 1).sum));
      EXPECT_FALSE(std::isnan(t.softmax_stats(row.data(), 2, 1.0F, 1).sum));
    }
  });
}

SoftmaxGradArgs grad_args(const std::vector<float>& logits, float temperature, float* out) {
  const auto vocab = static_cast<std::int64_t>(logits.size());
  return {.logits = logits.data(),
          .vocab = vocab,
          .temperature = temperature,
          .stats = reference::table().softmax_stats(logits.data(), vocab, temperature, 1),
          .target = static_cast<std::int32_t>(vocab / 3),
          .dlogprob = 0.8F,
          .dentropy = -0.3F,
          .dlogits = out};
}

TEST(SoftmaxTest, GradEqualsThePlainLoopApartAndInPlace) {
  TestRandom random(3);
  for (std::size_t vocab = 1; vocab < 100; ++vocab)
    for (const float temperature : kTemperatures) {
      const auto logits = random.reals(vocab, 6.0F);
      std::vector<float> expected(vocab);
      reference::table().softmax_grad(grad_args(logits, temperature, expected.data()));
      for_each_target([&](const OpTable& t) {
        std::vector<float> apart(vocab), in_place = logits;
        t.softmax_grad(grad_args(logits, temperature, apart.data()));
        t.softmax_grad(grad_args(in_place, temperature, in_place.data()));
        expect_same_bits(apart, expected);
        expect_same_bits(in_place, expected);
      });
    }
}

TEST(SoftmaxTest, GradWithoutATargetEqualsThePlainLoop) {
  TestRandom random(7);
  const auto logits = random.reals(50, 6.0F);
  std::vector<float> expected(logits.size()), actual(logits.size());
  SoftmaxGradArgs args = grad_args(logits, 1.0F, expected.data());
  args.target = -1;
  reference::table().softmax_grad(args);
  args.dlogits = actual.data();
  for_each_target([&](const OpTable& t) {
    t.softmax_grad(args);
    expect_same_bits(actual, expected);
  });
}

// dlogprob * log p(target) + dentropy * H(p), in fp64.
double loss(const std::vector<double>& logits, double temperature, std::size_t target) {
  double max = -1e300, sum = 0, entropy = 0;
  for (const double x : logits) max = std::max(max, x / temperature);
  for (const double x : logits) sum += std::exp(x / temperature - max);
  for (const double x : logits) {
    const double logprob = x / temperature - max - std::log(sum);
    entropy -= std::exp(logprob) * logprob;
  }
  return static_cast<double>(0.8F) * (logits[target] / temperature - max - std::log(sum)) +
         static_cast<double>(-0.3F) * entropy;
}

TEST(SoftmaxTest, GradMatchesFiniteDifferences) {
  TestRandom random(4);
  const auto logits = random.reals(23, 3.0F);
  for (const float temperature : kTemperatures) {
    std::vector<float> gradient(logits.size());
    reference::table().softmax_grad(grad_args(logits, temperature, gradient.data()));
    for (std::size_t i = 0; i < logits.size(); ++i) {
      constexpr double kStep = 1e-5;
      std::vector<double> above(logits.begin(), logits.end()), below = above;
      above[i] += kStep;
      below[i] -= kStep;
      const double expected =
          (loss(above, temperature, logits.size() / 3) - loss(below, temperature, logits.size() / 3)) /
          (2 * kStep);
      EXPECT_NEAR(gradient[i], expected, 2e-6) << "T " << temperature << " at " << i;
    }
  }
}

TEST(SoftmaxTest, SamplingWeightsEqualThePlainLoop) {
  TestRandom random(5);
  for (int vocab = 1; vocab < 150; ++vocab)
    for (const float temperature : kTemperatures) {
      const auto logits = random.reals(static_cast<std::size_t>(vocab), 25.0F);
      const float max = reference::table().softmax_stats(logits.data(), vocab, temperature, 1).max;
      std::vector<std::uint64_t> expected(logits.size());
      reference::table().sampling_weights(logits.data(), vocab, temperature, max, expected.data());
      EXPECT_EQ(*std::max_element(expected.begin(), expected.end()), std::uint64_t{1} << 40);
      for_each_target([&](const OpTable& t) {
        std::vector<std::uint64_t> actual(logits.size());
        t.sampling_weights(logits.data(), vocab, temperature, max, actual.data());
        EXPECT_EQ(actual, expected);
      });
    }
}

TEST(SoftmaxTest, FunctionRowsEqualTheScalarFunctions) {
  TestRandom random(6);
  struct Function {
    void (*OpTable::*row)(const float*, float*, std::int64_t);
    float (*scalar)(float);
  };
  const Function functions[] = {{&OpTable::exp, reference::exp},
                                {&OpTable::log, reference::log},
                                {&OpTable::sigmoid, reference::sigmoid}};
  for (std::size_t count = 0; count < 70; ++count) {
    const auto x = random.reals(count, 95.0F);
    for (const Function& f : functions)
      for_each_target([&](const OpTable& t) {
        std::vector<float> out(count);
        (t.*f.row)(x.data(), out.data(), static_cast<std::int64_t>(count));
        for (std::size_t i = 0; i < count; ++i) {
          const float expected = f.scalar(x[i]);
          if (std::isnan(expected))
            EXPECT_TRUE(std::isnan(out[i])) << x[i];
          else
            EXPECT_EQ(std::bit_cast<std::uint32_t>(out[i]), std::bit_cast<std::uint32_t>(expected)) << x[i];
        }
      });
  }
}

}  // namespace
}  // namespace rondo::kernels
