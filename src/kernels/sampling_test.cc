// The sampler against a naive model, by hand at its edges, and statistically against the softmax.
#include "kernels/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "kernels/op_table_test.h"
#include "kernels/reference_math.h"

namespace rondo::kernels {
namespace {

__extension__ using Uint128 = unsigned __int128;

constexpr std::uint64_t kUnit = std::uint64_t{1} << 40;

// The weights that the cut-offs leave, by a full sort.
std::vector<std::uint64_t> naive_weights(const std::vector<float>& logits, const SamplingParams& params) {
  const OpTable& ops = reference::table();
  const auto vocab = static_cast<std::int64_t>(logits.size());
  const float max = ops.softmax_stats(logits.data(), vocab, params.temperature, 1).max;
  std::vector<std::uint64_t> weights(logits.size());
  ops.sampling_weights(logits.data(), vocab, params.temperature, max, weights.data());
  std::vector<std::size_t> ranking(logits.size());
  std::iota(ranking.begin(), ranking.end(), std::size_t{0});
  std::stable_sort(ranking.begin(), ranking.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < ranking.size())
    ranking.resize(static_cast<std::size_t>(params.top_k));
  if (params.top_p < 1.0F) {
    Uint128 total = 0, sum = 0;
    for (const std::size_t id : ranking) total += weights[id];
    // sum >= top_p * total in integers: top_p has 24 bits, so top_p * 2^40 is whole for top_p > 2^-16.
    const auto share = static_cast<std::uint64_t>(std::ldexp(static_cast<double>(params.top_p), 40));
    std::size_t count = 0;
    while (sum * kUnit < share * total) sum += weights[ranking[count++]];
    ranking.resize(count);
  }
  std::vector<std::uint64_t> kept(logits.size());
  for (const std::size_t id : ranking)
    if (static_cast<double>(weights[id]) >= std::ldexp(static_cast<double>(params.min_p), 40))
      kept[id] = weights[id];
  return kept;
}

Token naive_token(const std::vector<float>& logits, const SamplingParams& params, const SamplingDraw& draw) {
  if (params.temperature == 0.0F)
    return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const auto weights = naive_weights(logits, params);
  const std::uint64_t target =
      draw.rng.below(draw.counter, std::accumulate(weights.begin(), weights.end(), std::uint64_t{0}));
  std::uint64_t sum = 0;
  Token token = 0;
  for (;; ++token) {
    sum += weights[static_cast<std::size_t>(token)];
    if (sum > target) return token;
  }
}

Sampled must_sample(const OpTable& ops, const std::vector<float>& logits, const SamplingParams& params,
                    const SamplingDraw& draw) {
  static SamplingScratch scratch;  // reused across vocabularies of all sizes, as an engine would
  const auto sampled = sample(ops, logits, params, draw, 1, scratch);
  EXPECT_TRUE(sampled.has_value());
  return sampled.value_or(Sampled{-1, 0.0F, 0.0F});
}

SamplingParams any_params(TestRandom& random) {
  SamplingParams params;
  params.temperature =
      std::array{0.0F, 0.3F, 1.0F, 1.0F, 5.0F}[static_cast<std::size_t>(random.integer(0, 4))];
  if (random.integer(0, 1) == 1) params.top_k = random.integer(-1, 60);
  if (random.integer(0, 1) == 1) params.top_p = 0.01F + static_cast<float>(random.integer(0, 98)) / 100.0F;
  if (random.integer(0, 2) == 1) params.min_p = static_cast<float>(random.integer(0, 100)) / 100.0F;
  return params;
}

std::vector<float> any_logits(TestRandom& random) {
  auto logits = random.reals(static_cast<std::size_t>(random.integer(1, 1500)),
                             std::array{0.01F, 3.0F, 40.0F}[static_cast<std::size_t>(random.integer(0, 2))]);
  if (random.integer(0, 1) == 1)
    for (float& x : logits) x = std::round(x);  // many ties
  return logits;
}

TEST(SamplingTest, EqualsTheNaiveModelOnEveryTarget) {
  TestRandom random(1);
  const Rng rng(7, RngPurpose::kRollout);
  for (std::uint32_t trial = 0; trial < 400; ++trial) {
    const auto logits = any_logits(random);
    const SamplingParams params = any_params(random);
    ASSERT_TRUE(params.validate().has_value());
    const SamplingDraw draw{rng, {.step = trial}};
    const Token expected = naive_token(logits, params, draw);
    const float logprob = must_sample(reference::table(), logits, params, draw).logprob;
    for_each_target([&](const OpTable& t) {
      const Sampled sampled = must_sample(t, logits, params, draw);
      EXPECT_EQ(sampled.token, expected) << "trial " << trial;
      EXPECT_EQ(sampled.logprob, logprob) << "trial " << trial;
    });
  }
}

TEST(SamplingTest, LogprobAndEntropyIgnoreTheCutoffs) {
  const std::vector<float> logits = {0.0F, 2.0F, 1.0F};
  const Rng rng(7, RngPurpose::kEval);
  const OpTable& ops = reference::table();
  for (const float temperature : {0.0F, 1.0F, 0.5F}) {
    const float scale = scoring_temperature(temperature);
    const SoftmaxStats stats = ops.softmax_stats(logits.data(), 3, scale, 1);
    const Sampled sampled =
        must_sample(ops, logits, {.temperature = temperature, .top_k = 1, .top_p = 0.5F}, {rng, {}});
    EXPECT_EQ(sampled.token, 1);
    EXPECT_EQ(sampled.logprob, (2.0F / scale - stats.max) - reference::log(stats.sum));
    EXPECT_EQ(sampled.logprob, logprob_of(ops, stats, 2.0F / scale));
    EXPECT_EQ(sampled.entropy, entropy_of(ops, stats));
  }
}

TEST(SamplingTest, EntropyOfAUniformRowIsItsLogarithm) {
  const std::vector<float> logits(10, 3.0F);
  const OpTable& ops = reference::table();
  EXPECT_EQ(entropy_of(ops, ops.softmax_stats(logits.data(), 10, 1.0F, 1)), reference::log(10.0F));
}

// The tokens that ever appear in many draws.
std::vector<Token> support(const std::vector<float>& logits, const SamplingParams& params) {
  const Rng rng(11, RngPurpose::kRollout);
  std::vector<Token> seen;
  for (std::uint32_t i = 0; i < 400; ++i)
    seen.push_back(must_sample(*available_targets().front(), logits, params, {rng, {.position = i}}).token);
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  return seen;
}

TEST(SamplingTest, TiesGoToTheLowerId) {
  const std::vector<float> logits = {-1.0F, 1.0F, 0.0F, 1.0F, 1.0F};
  EXPECT_EQ(support(logits, {.temperature = 0.0F}), (std::vector<Token>{1}));
  EXPECT_EQ(support(logits, {.top_k = 1}), (std::vector<Token>{1}));
  EXPECT_EQ(support(logits, {.top_k = 2}), (std::vector<Token>{1, 3}));
  EXPECT_EQ(support(logits, {.top_p = 0.01F}), (std::vector<Token>{1}));
  EXPECT_EQ(support({0.0F, -0.0F}, {.top_k = 1}), (std::vector<Token>{0}));
  EXPECT_EQ(support({-0.0F, 0.0F}, {.top_k = 1}), (std::vector<Token>{0}));
}

TEST(SamplingTest, TopPKeepsTheFewestThatReachTheShare) {
  const std::vector<float> even(4, 2.0F);  // a quarter each, exactly
  EXPECT_EQ(support(even, {.top_p = 0.25F}), (std::vector<Token>{0}));
  EXPECT_EQ(support(even, {.top_p = std::nextafter(0.25F, 1.0F)}), (std::vector<Token>{0, 1}));
  EXPECT_EQ(support(even, {.top_p = 0.5F}), (std::vector<Token>{0, 1}));
  EXPECT_EQ(support(even, {.top_p = std::nextafter(1.0F, 0.0F)}), (std::vector<Token>{0, 1, 2, 3}));
  EXPECT_EQ(support(even, {.top_p = 1.0F}), (std::vector<Token>{0, 1, 2, 3}));
  EXPECT_EQ(support(even, {.top_p = std::numeric_limits<float>::denorm_min()}), (std::vector<Token>{0}));
}

TEST(SamplingTest, TopPIsAShareOfWhatTopKLeft) {
  const std::vector<float> even(8, 0.0F);
  EXPECT_EQ(support(even, {.top_k = 4, .top_p = 0.5F}), (std::vector<Token>{0, 1}));
}

TEST(SamplingTest, MinPIsAShareOfTheMostLikely) {
  const std::vector<float> logits = {0.0F, -0.5F, -1.0F, -30.0F};
  EXPECT_EQ(support(logits, {.min_p = 1.0F}), (std::vector<Token>{0}));
  EXPECT_EQ(support(logits, {.min_p = 0.6F}), (std::vector<Token>{0, 1}));  // e^-0.5 = 0.607
  EXPECT_EQ(support(logits, {.min_p = 0.61F}), (std::vector<Token>{0}));
  EXPECT_EQ(support(logits, {.min_p = 0.0F}), (std::vector<Token>{0, 1, 2}));
}

TEST(SamplingTest, TopKOfOneIsGreedy) {
  TestRandom random(2);
  const Rng rng(3, RngPurpose::kRollout);
  for (std::uint32_t trial = 0; trial < 200; ++trial) {
    auto logits = any_logits(random);
    logits.push_back(std::nextafter(*std::max_element(logits.begin(), logits.end()), 100.0F));
    const SamplingDraw draw{rng, {.step = trial}};
    const OpTable& ops = *available_targets().front();
    EXPECT_EQ(must_sample(ops, logits, {.temperature = 3.0F, .top_k = 1}, draw).token,
              must_sample(ops, logits, {.temperature = 0.0F}, draw).token);
  }
}

TEST(SamplingTest, ScratchIsAllocatedOnce) {
  TestRandom random(3);
  const Rng rng(1, RngPurpose::kRollout);
  const SamplingParams params{.temperature = 0.9F, .top_k = 900, .top_p = 0.95F};
  SamplingScratch scratch;
  const auto places = [&] {
    return std::array<const void*, 4>{scratch.weights.data(), scratch.block_sums.data(),
                                      scratch.buckets.data(), scratch.keys.data()};
  };
  const std::vector<float> even(1000, 1.0F);
  ASSERT_TRUE(sample(reference::table(), even, params, {rng, {}}, 1, scratch).has_value());
  const auto before = places();
  for (std::uint32_t i = 0; i < 20; ++i) {
    const auto logits = random.reals(1000, 4.0F);
    ASSERT_TRUE(sample(reference::table(), logits, params, {rng, {.position = i}}, 1, scratch).has_value());
    EXPECT_EQ(places(), before);
  }
}

TEST(SamplingTest, NonFiniteLogitsAreAnErrorThatNamesTheToken) {
  const Rng rng(1, RngPurpose::kRollout);
  SamplingScratch scratch;
  for (const float bad :
       {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()})
    for (const float temperature : {0.0F, 1.0F}) {
      std::vector<float> logits(20, 1.0F);
      logits[13] = bad;
      const auto sampled =
          sample(reference::table(), logits, {.temperature = temperature}, {rng, {}}, 1, scratch);
      ASSERT_FALSE(sampled.has_value());
      EXPECT_EQ(sampled.error().code(), Code::kNumeric);
      EXPECT_NE(sampled.error().message().find("token 13"), std::string::npos);
    }
}

TEST(SamplingTest, OverflowByTheTemperatureIsAnErrorThatNamesIt) {
  const Rng rng(1, RngPurpose::kRollout);
  SamplingScratch scratch;
  const std::vector<float> logits = {1.0F, 2.0F};
  const auto sampled = sample(reference::table(), logits, {.temperature = 1e-39F}, {rng, {}}, 1, scratch);
  ASSERT_FALSE(sampled.has_value());
  EXPECT_EQ(sampled.error().code(), Code::kNumeric);
  EXPECT_NE(sampled.error().message().find("temperature"), std::string::npos);
}

TEST(SamplingTest, ValidateNamesTheField) {
  const std::pair<SamplingParams, const char*> cases[] = {{{.temperature = -1.0F}, "temperature"},
                                                          {{.temperature = std::nanf("")}, "temperature"},
                                                          {{.top_k = -2}, "top_k"},
                                                          {{.top_p = 0.0F}, "top_p"},
                                                          {{.top_p = 1.01F}, "top_p"},
                                                          {{.min_p = -0.1F}, "min_p"},
                                                          {{.min_p = std::nanf("")}, "min_p"}};
  for (const auto& [params, field] : cases) {
    const auto valid = params.validate();
    ASSERT_FALSE(valid.has_value()) << field;
    EXPECT_EQ(valid.error().code(), Code::kInvalidArgument);
    EXPECT_NE(valid.error().message().find(field), std::string::npos);
  }
}

// Probabilities of the cut and renormalised softmax, all in fp64 and apart from the integer weights.
std::vector<double> probabilities(const std::vector<float>& logits, const SamplingParams& params) {
  const auto temperature = static_cast<double>(params.temperature);
  std::vector<std::pair<double, std::size_t>> ranking;
  for (std::size_t id = 0; id < logits.size(); ++id)
    ranking.emplace_back(-std::exp(static_cast<double>(logits[id]) / temperature), id);
  std::sort(ranking.begin(), ranking.end());
  if (params.top_k > 0) ranking.resize(std::min(ranking.size(), static_cast<std::size_t>(params.top_k)));
  double total = 0, sum = 0;
  for (const auto& [weight, id] : ranking) total -= weight;
  std::vector<double> result(logits.size());
  double kept = 0;
  for (const auto& [weight, id] : ranking) {
    if (sum >= static_cast<double>(params.top_p) * total) break;
    sum -= weight;
    if (weight > static_cast<double>(params.min_p) * ranking.front().first) break;
    result[id] = -weight;
    kept -= weight;
  }
  for (double& p : result) p /= kept;
  return result;
}

// Pearson's statistic over tokens expected at least five times; the others count as one more class.
void expect_follows(const std::vector<double>& expected, const SamplingParams& params,
                    const std::vector<float>& logits) {
  constexpr std::uint32_t kDraws = 60000;
  const Rng rng(2024, RngPurpose::kRollout);
  std::vector<int> counts(logits.size());
  for (std::uint32_t i = 0; i < kDraws; ++i)
    ++counts[static_cast<std::size_t>(
        must_sample(*available_targets().front(), logits, params, {rng, {.position = i}}).token)];
  double statistic = 0, rest_expected = 0, rest_count = 0;
  int classes = 0;
  const auto add = [&](double count, double mean) {
    statistic += (count - mean) * (count - mean) / mean;
    ++classes;
  };
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const double mean = expected[id] * kDraws;
    if (expected[id] == 0.0) {
      EXPECT_EQ(counts[id], 0) << "token " << id << " was cut";
    } else if (mean >= 5) {
      add(counts[id], mean);
    } else {
      rest_expected += mean;
      rest_count += counts[id];
    }
  }
  if (rest_expected >= 1) add(rest_count, rest_expected);
  ASSERT_GE(classes, 3);
  // Wilson and Hilferty's approximation of the chi-square quantile at p = 0.001.
  const double freedom = classes - 1, spread = 2 / (9 * freedom);
  EXPECT_LT(statistic, freedom * std::pow(1 - spread + 3.0902 * std::sqrt(spread), 3));
}

TEST(SamplingTest, DrawsFollowTheSoftmax) {
  TestRandom random(5);
  const auto logits = random.reals(60, 3.0F);
  const SamplingParams cases[] = {{},
                                  {.temperature = 0.6F},
                                  {.temperature = 1.7F},
                                  {.top_k = 10},
                                  {.top_p = 0.7F},
                                  {.min_p = 0.2F},
                                  {.temperature = 1.5F, .top_k = 30, .top_p = 0.9F, .min_p = 0.1F}};
  for (const SamplingParams& params : cases) {
    SCOPED_TRACE(params.temperature);
    expect_follows(probabilities(logits, params), params, logits);
  }
}

}  // namespace
}  // namespace rondo::kernels
