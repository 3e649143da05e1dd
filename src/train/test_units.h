// Units to train on, for this module's tests.
#pragma once

#include <cstdint>
#include <vector>

#include "testing/tiny_model.h"
#include "train/gradient_sum.h"
#include "train/naive_policy.h"
#include "train/unit.h"

namespace rondo::train {

/// A unit of random tokens whose old and reference log-probabilities lie around those of `policy`, so that
/// some tokens are clipped on either side and none is near the edge of a clip.
inline TrainUnit make_train_unit(const NaivePolicy& policy, std::int32_t vocab, std::int64_t prompt,
                                 const std::vector<std::int64_t>& lengths, float temperature = 1.0F,
                                 std::uint32_t seed = 1) {
  constexpr float kOldOffsets[] = {0.0F, 0.1F, -0.5F, 0.05F, 0.6F, -0.1F};
  constexpr float kAdvantages[] = {1.25F, -0.75F, 0.5F, -1.5F, 2.0F};
  TrainUnit unit{testing::random_tokens(vocab, prompt, seed), {}};
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    TrainSample sample;
    sample.tokens = testing::random_tokens(vocab, lengths[s], seed + static_cast<std::uint32_t>(s) + 1);
    const auto scores = policy.scores(unit.prompt, sample.tokens, temperature);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const auto logprob = static_cast<float>(scores[i].logprob);
      sample.old_logprobs.push_back(logprob + kOldOffsets[(i + s) % 6]);
      sample.ref_logprobs.push_back(logprob - kOldOffsets[(i + s + 1) % 6]);
    }
    sample.advantage = kAdvantages[s % 5];
    sample.weight = 1.0F / static_cast<float>(s + 1);
    unit.samples.push_back(std::move(sample));
  }
  return unit;
}

/// The gradient sum of every parameter, as its integers.
inline std::vector<std::int64_t> gradient_bits(const model::ParamLayout& layout, const GradientSum& sum) {
  std::vector<std::int64_t> bits;
  for (std::size_t i = 0; i < layout.params().size(); ++i) {
    const auto param = static_cast<model::ParamIndex>(i);
    bits.insert(bits.end(), sum.data(param), sum.data(param) + layout[param].count());
  }
  return bits;
}

}  // namespace rondo::train
