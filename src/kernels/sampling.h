// The sampler: one token from one row of logits, and the log-probability that the trainer computes too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/id.h"
#include "base/rng.h"
#include "base/status.h"
#include "kernels/op_table.h"

namespace rondo::kernels {

/// How a token is drawn. The settings apply in this order; each starts from what the one before it left.
struct SamplingParams {
  float temperature = 1.0F;  // logits are divided by it; 0: the greatest logit (greedy)
  std::int32_t top_k = 0;    // keep the k greatest logits; 0 or -1: all
  float top_p = 1.0F;        // keep the fewest most likely tokens whose share is at least this; 1: all
  float min_p = 0.0F;        // keep tokens at least this share as likely as the most likely one; 0: all

  /// kInvalidArgument names the field and its range.
  Result<void> validate() const;
};

/// The temperature at which log-probabilities are recorded: greedy responses count as drawn at 1.
inline float scoring_temperature(float temperature) {
  return temperature == 0.0F ? 1.0F : temperature;
}

/// log p of the token with scaled logit x = logit / T: (x - max) - log(sum). Both the sampler and the trainer
/// call it, so both get the same bits.
float logprob_of(const OpTable& ops, const SoftmaxStats& stats, float x);
/// Entropy of the distribution, in nats: log(sum) - weighted / sum, as softmax_grad has it.
float entropy_of(const OpTable& ops, const SoftmaxStats& stats);

/// The random number of one draw: `rng` (not owned) at `counter`.
struct SamplingDraw {
  const Rng& rng;
  RngCounter counter;
};

struct Sampled {
  Token token;
  float logprob;  // over the whole vocabulary at scoring_temperature, whatever the cut-offs
  float entropy;  // of that distribution, in nats
};

/// Buffers that `sample` grows to the vocabulary's size once and then reuses. One per thread; the contents
/// mean nothing between calls.
struct SamplingScratch {
  std::vector<std::uint64_t> weights;     // [vocab]
  std::vector<std::uint64_t> block_sums;  // of the weights
  std::vector<std::uint16_t> buckets;     // [vocab] by distance from the greatest logit
  std::vector<std::uint64_t> keys;        // candidates at a cut-off
};

/// Largest vocabulary: its weights, at most 2^40 each, sum below 2^63.
inline constexpr std::size_t kMaxVocab = std::size_t{1} << 22;

/// Draws a token. Likelihoods are the integers of OpTable::sampling_weights, and cut-offs and the draw are
/// exact sums of them in order of token id, so the result depends on logits, parameters and random number
/// alone. Tokens rank by logit; of equal logits, the lower id ranks first (greedy included). At least the
/// first in rank is always kept. `chains` is that of softmax_stats.
///
/// Preconditions: params valid, 1 <= logits.size() <= kMaxVocab. kNumeric if a logit, or a logit divided by
/// the temperature, is not finite. Any thread; no allocation once `scratch` has grown.
Result<Sampled> sample(const OpTable& ops, std::span<const float> logits, const SamplingParams& params,
                       const SamplingDraw& draw, std::int32_t chains, SamplingScratch& scratch);

}  // namespace rondo::kernels
