#include "kernels/sampling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace rondo::kernels {
namespace {

constexpr std::size_t kBlock = 512;  // tokens per partial sum
constexpr std::size_t kNumBuckets = 512;
constexpr float kWeightRange = 28.0F;                         // beyond max - 28, weights are 0: 2^40 < e^28
constexpr std::uint64_t kMaxWeight = std::uint64_t{1} << 40;  // of the greatest logit: exp(0) = 1
constexpr std::uint32_t kLastId = 0xFFFFFFFF;

__extension__ using Uint128 = unsigned __int128;

// Orders tokens by rank: greater for the greater logit, and for the lower id of equal logits.
std::uint64_t rank_key(float logit, std::size_t id) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0F);  // -0 and +0 are equal
  const std::uint32_t ordered = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return (std::uint64_t{ordered} << 32) | (kLastId - static_cast<std::uint32_t>(id));
}

std::size_t id_of(std::uint64_t key) {
  return kLastId - static_cast<std::uint32_t>(key);
}

// ceil(p * total) for 0 < p <= 1, exact for the fp32 value p.
std::uint64_t ceil_share(float p, std::uint64_t total) {
  const auto bits = std::bit_cast<std::uint32_t>(p);
  const std::uint32_t exponent = std::max(bits >> 23, std::uint32_t{1});
  const std::uint32_t mantissa = (bits & 0x7FFFFFu) | (bits >> 23 != 0 ? 0x800000u : 0u);
  const std::uint32_t shift = 150 - exponent;  // p = mantissa / 2^shift, and mantissa * total < 2^87
  if (shift >= 96) return 1;
  return static_cast<std::uint64_t>(((Uint128{mantissa} * total) + (Uint128{1} << shift) - 1) >> shift);
}

struct Extremes {
  float low;
  float high;
};

// Sixteen running extremes, which compilers turn into vector instructions. The logits are finite.
Extremes extremes(std::span<const float> logits) {
  constexpr std::size_t kLanes = 16;
  std::array<float, kLanes> low, high;
  low.fill(logits[0]);
  high.fill(logits[0]);
  std::size_t id = 0;
  for (; id + kLanes <= logits.size(); id += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float x = logits[id + lane];
      low[lane] = x < low[lane] ? x : low[lane];
      high[lane] = x > high[lane] ? x : high[lane];
    }
  for (; id < logits.size(); ++id) {
    low[0] = std::min(low[0], logits[id]);
    high[0] = std::max(high[0], logits[id]);
  }
  return {*std::min_element(low.begin(), low.end()), *std::max_element(high.begin(), high.end())};
}

// Sorts tokens coarsely by rank: bucket numbers ascend as logits descend. All arithmetic is monotone in the
// logit, so a bucket holds a contiguous stretch of the ranking.
void fill_buckets(std::span<const float> logits, float temperature, std::vector<std::uint16_t>& buckets) {
  const auto [low, high] = extremes(logits);
  float scale = static_cast<float>(kNumBuckets) / std::min(kWeightRange * temperature, high - low);
  if (!std::isfinite(scale)) scale = 0.0F;  // all logits equal
  buckets.resize(logits.size());
  constexpr auto kLastBucket = static_cast<float>(kNumBuckets - 1);
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const float distance = (high - logits[id]) * scale;
    const float bucket = distance < kLastBucket ? distance : kLastBucket;
    buckets[id] = static_cast<std::uint16_t>(static_cast<std::int32_t>(bucket));
  }
}

// Sets to 0 the weights of all tokens after the last one that is needed, in rank order, for the sum of
// `measure` to reach `need` (at most the sum over all). A histogram finds that token's bucket, a sort of the
// bucket the token.
template <class Measure>
void cut(std::span<const float> logits, std::uint64_t need, SamplingScratch& scratch,
         const Measure& measure) {
  const std::vector<std::uint16_t>& buckets = scratch.buckets;
  std::array<std::uint64_t, kNumBuckets> histogram{};
  for (std::size_t id = 0; id < logits.size(); ++id) histogram[buckets[id]] += measure(id);
  std::uint16_t last = 0;
  for (; histogram[last] < need; ++last) need -= histogram[last];
  std::vector<std::uint64_t>& keys = scratch.keys;
  keys.clear();
  keys.reserve(logits.size());
  for (std::size_t id = 0; id < logits.size(); ++id)
    if (buckets[id] == last) keys.push_back(rank_key(logits[id], id));
  std::sort(keys.begin(), keys.end(), std::greater<>());
  std::size_t kept = 0;
  for (std::uint64_t sum = 0; sum < need; ++kept) sum += measure(id_of(keys[kept]));
  for (std::size_t id = 0; id < logits.size(); ++id)
    scratch.weights[id] = buckets[id] > last ? 0 : scratch.weights[id];
  for (; kept < keys.size(); ++kept) scratch.weights[id_of(keys[kept])] = 0;
}

// Sets to 0 the weights of tokens that a cut-off drops.
void apply_cutoffs(std::span<const float> logits, const SamplingParams& params, SamplingScratch& scratch) {
  std::vector<std::uint64_t>& weights = scratch.weights;
  const bool top_k = params.top_k > 0 && static_cast<std::size_t>(params.top_k) < logits.size();
  const bool top_p = params.top_p < 1.0F;
  if (top_k || top_p) fill_buckets(logits, params.temperature, scratch.buckets);
  if (top_k) {
    const auto one = [](std::size_t /*id*/) { return std::uint64_t{1}; };
    cut(logits, static_cast<std::uint64_t>(params.top_k), scratch, one);
  }
  if (top_p) {
    const std::uint64_t total = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
    const auto weight = [&](std::size_t id) { return weights[id]; };
    cut(logits, ceil_share(params.top_p, total), scratch, weight);
  }
  if (params.min_p > 0.0F) {
    const std::uint64_t least = ceil_share(params.min_p, kMaxWeight);
    for (std::uint64_t& weight : weights)
      if (weight < least) weight = 0;
  }
}

// The token at which the running sum of weights, in id order, passes a uniform random integer below the
// total.
std::size_t draw_token(const SamplingDraw& draw, SamplingScratch& scratch) {
  const std::vector<std::uint64_t>& weights = scratch.weights;
  const std::size_t blocks = (weights.size() + kBlock - 1) / kBlock;
  scratch.block_sums.resize(blocks);
  std::uint64_t total = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t end = std::min(weights.size(), (block + 1) * kBlock);
    std::uint64_t sum = 0;
    for (std::size_t id = block * kBlock; id < end; ++id) sum += weights[id];
    scratch.block_sums[block] = sum;
    total += sum;
  }
  std::uint64_t rest = draw.rng.below(draw.counter, total);
  std::size_t block = 0;
  for (; rest >= scratch.block_sums[block]; ++block) rest -= scratch.block_sums[block];
  std::size_t id = block * kBlock;
  for (; rest >= weights[id]; ++id) rest -= weights[id];
  return id;
}

tl::unexpected<Status> not_finite(std::span<const float> logits, float temperature) {
  for (std::size_t id = 0; id < logits.size(); ++id)
    if (!std::isfinite(logits[id]))
      return fail(Code::kNumeric, "the logit of token {} is {}: the weights have diverged or are corrupt", id,
                  logits[id]);
  return fail(Code::kNumeric,
              "logits divided by temperature {} overflow; raise the temperature, or set it "
              "to 0 for the most likely token",
              temperature);
}

}  // namespace

Result<void> SamplingParams::validate() const {
  if (!(temperature >= 0.0F && std::isfinite(temperature)))
    return fail(Code::kInvalidArgument, "temperature is {}; it must be 0 (greedy) or a positive number",
                temperature);
  if (top_k < -1)
    return fail(Code::kInvalidArgument, "top_k is {}; it must be at least 1, or 0 or -1 for all tokens",
                top_k);
  if (!(top_p > 0.0F && top_p <= 1.0F))
    return fail(Code::kInvalidArgument, "top_p is {}; it must be in (0, 1], 1 for all tokens", top_p);
  if (!(min_p >= 0.0F && min_p <= 1.0F))
    return fail(Code::kInvalidArgument, "min_p is {}; it must be in [0, 1], 0 for all tokens", min_p);
  return {};
}

float logprob_of(const OpTable& ops, const SoftmaxStats& stats, float x) {
  float log_sum = 0.0F;
  ops.log(&stats.sum, &log_sum, 1);
  return (x - stats.max) - log_sum;
}

float entropy_of(const OpTable& ops, const SoftmaxStats& stats) {
  float log_sum = 0.0F;
  ops.log(&stats.sum, &log_sum, 1);
  return log_sum - stats.weighted / stats.sum;
}

Result<Sampled> sample(const OpTable& ops, std::span<const float> logits, const SamplingParams& params,
                       const SamplingDraw& draw, std::int32_t chains, SamplingScratch& scratch) {
  RONDO_CHECK(!logits.empty() && logits.size() <= kMaxVocab);
  const float temperature = scoring_temperature(params.temperature);
  const auto vocab = static_cast<std::int64_t>(logits.size());
  const SoftmaxStats stats = ops.softmax_stats(logits.data(), vocab, temperature, chains);
  if (!std::isfinite(stats.sum)) return not_finite(logits, temperature);
  std::size_t id = 0;
  if (params.temperature == 0.0F) {
    id = static_cast<std::size_t>(std::find(logits.begin(), logits.end(), stats.max) - logits.begin());
  } else {
    scratch.weights.resize(logits.size());
    ops.sampling_weights(logits.data(), vocab, temperature, stats.max, scratch.weights.data());
    apply_cutoffs(logits, params, scratch);
    id = draw_token(draw, scratch);
  }
  return Sampled{static_cast<Token>(id), logprob_of(ops, stats, logits[id] / temperature),
                 entropy_of(ops, stats)};
}

}  // namespace rondo::kernels
