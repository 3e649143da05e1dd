#include "data/prompt_sampler.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/rng.h"

namespace rondo::data {
namespace {

PromptSampler make(PromptSampler::Config config, std::int64_t num_prompts) {
  return PromptSampler::create(config, num_prompts).value();
}

std::vector<std::int64_t> iota(std::int64_t count) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), std::int64_t{0});
  return values;
}

RC_GTEST_PROP(PromptSamplerTest, BatchesAreTheStreamOfEpochsWithoutGaps, ()) {
  const auto num_prompts = *rc::gen::inRange<std::int64_t>(1, 40);
  const auto batch_size = *rc::gen::inRange<std::int64_t>(1, 100);
  const auto seed = *rc::gen::arbitrary<std::uint32_t>();
  const bool shuffle = *rc::gen::arbitrary<bool>();
  const PromptSampler sampler =
      make({.batch_size = batch_size, .shuffle = shuffle, .seed = seed}, num_prompts);

  std::vector<std::int64_t> stream;
  for (std::int64_t epoch = 0; epoch < 8; ++epoch) {
    const auto order = sampler.epoch_order(epoch);
    auto sorted = order;
    std::sort(sorted.begin(), sorted.end());
    RC_ASSERT(sorted == iota(num_prompts));
    stream.insert(stream.end(), order.begin(), order.end());
  }
  const std::int64_t num_steps = sampler.num_steps(8);
  RC_ASSERT(num_steps == 8 * num_prompts / batch_size);
  for (std::int64_t step = 0; step < num_steps; ++step) {
    const auto begin = stream.begin() + step * batch_size;
    RC_ASSERT(sampler.batch(step) == std::vector<std::int64_t>(begin, begin + batch_size));
    RC_ASSERT(sampler.epoch_of(step) == step * batch_size / num_prompts);
  }
}

TEST(PromptSamplerTest, FollowsTheStatedFisherYatesDraws) {
  // The definition, word for word: element i, from the last down, changes places with one drawn from [0, i].
  const std::int64_t num_prompts = 17;
  const PromptSampler sampler = make({.batch_size = 4, .seed = 9}, num_prompts);
  for (const std::uint32_t epoch : {0u, 1u, 5u}) {
    std::vector<std::int64_t> expected = iota(num_prompts);
    for (std::uint32_t i = 16; i > 0; --i) {
      const auto j = Rng(9, RngPurpose::kShuffle).below({epoch, i, 0, 0}, i + 1);
      std::swap(expected[i], expected[j]);
    }
    EXPECT_EQ(sampler.epoch_order(epoch), expected);
  }
}

TEST(PromptSamplerTest, OrderDependsOnSeedAndEpochButNotOnBatchSize) {
  const auto order = make({.batch_size = 4, .seed = 1}, 50).epoch_order(0);
  EXPECT_EQ(order, make({.batch_size = 7, .seed = 1}, 50).epoch_order(0));
  EXPECT_NE(order, make({.batch_size = 4, .seed = 2}, 50).epoch_order(0));
  EXPECT_NE(order, make({.batch_size = 4, .seed = 1}, 50).epoch_order(1));
  EXPECT_EQ(make({.batch_size = 4, .shuffle = false}, 50).epoch_order(3), iota(50));
}

TEST(PromptSamplerTest, AllOrdersOfThreeAreEquallyLikely) {
  const PromptSampler sampler = make({.batch_size = 1, .seed = 4}, 3);
  std::map<std::vector<std::int64_t>, int> counts;
  const int num_epochs = 6000;
  for (int epoch = 0; epoch < num_epochs; ++epoch) ++counts[sampler.epoch_order(epoch)];
  double chi_square = 0;
  for (const auto& [order, count] : counts) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_EQ(counts.size(), 6u);
  EXPECT_LT(chi_square, 20.5);  // 5 degrees of freedom, p = 0.001; the seed is fixed
}

TEST(PromptSamplerTest, ABatchLargerThanTheDatasetRepeatsIt) {
  EXPECT_EQ(make({.batch_size = 5, .shuffle = false}, 2).batch(1),
            (std::vector<std::int64_t>{1, 0, 1, 0, 1}));
}

TEST(PromptSamplerTest, RefusesSizesOutOfRange) {
  EXPECT_FALSE(PromptSampler::create({.batch_size = 1}, 0));
  EXPECT_FALSE(PromptSampler::create({.batch_size = 0}, 1));
  EXPECT_FALSE(PromptSampler::create({.batch_size = 1}, std::int64_t{1} << 32));
  EXPECT_FALSE(PromptSampler::create({.batch_size = std::int64_t{1} << 32}, 1));
}

}  // namespace
}  // namespace rondo::data
