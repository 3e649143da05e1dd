#include "data/prompt_sampler.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace rondo::data {
namespace {

constexpr std::int64_t kMaxCount = std::numeric_limits<std::uint32_t>::max();

}  // namespace

Result<PromptSampler> PromptSampler::create(const Config& config, std::int64_t num_prompts) {
  if (num_prompts < 1 || num_prompts > kMaxCount) {
    return fail(Code::kInvalidArgument, "a dataset of {} prompts; it must hold 1 to {}", num_prompts,
                kMaxCount);
  }
  if (config.batch_size < 1 || config.batch_size > kMaxCount) {
    return fail(Code::kInvalidArgument, "a batch of {} prompts (train_batch_size); it must be 1 to {}",
                config.batch_size, kMaxCount);
  }
  return PromptSampler(config, num_prompts);
}

// Fisher-Yates from the end; the draw that places element i is at counter (epoch, i).
std::vector<std::int64_t> PromptSampler::epoch_order(std::int64_t epoch) const {
  RONDO_CHECK_GE(epoch, 0);
  RONDO_CHECK_LE(epoch, kMaxCount);
  std::vector<std::int64_t> order(static_cast<std::size_t>(num_prompts_));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (!config_.shuffle) return order;
  const Rng rng(config_.seed, RngPurpose::kShuffle);
  for (std::size_t i = order.size() - 1; i > 0; --i) {
    const RngCounter counter{.step = static_cast<std::uint32_t>(epoch),
                             .ordinal = static_cast<std::uint32_t>(i)};
    std::swap(order[i], order[rng.below(counter, i + 1)]);
  }
  return order;
}

std::vector<std::int64_t> PromptSampler::batch(std::int64_t step) const {
  std::vector<std::int64_t> indices;
  indices.reserve(static_cast<std::size_t>(config_.batch_size));
  std::int64_t epoch = epoch_of(step);
  std::int64_t offset = stream_begin(step) % num_prompts_;
  std::int64_t missing = config_.batch_size;
  while (missing > 0) {
    const std::vector<std::int64_t> order = epoch_order(epoch++);
    const std::int64_t count = std::min(missing, num_prompts_ - offset);
    indices.insert(indices.end(), order.begin() + offset, order.begin() + offset + count);
    missing -= count;
    offset = 0;
  }
  return indices;
}

std::int64_t PromptSampler::stream_begin(std::int64_t step) const {
  RONDO_CHECK_GE(step, 0);
  RONDO_CHECK_LT(step, std::numeric_limits<std::int64_t>::max() / config_.batch_size);
  return step * config_.batch_size;
}

std::int64_t PromptSampler::epoch_of(std::int64_t step) const {
  return stream_begin(step) / num_prompts_;
}

std::int64_t PromptSampler::num_steps(std::int64_t num_epochs) const {
  RONDO_CHECK_GE(num_epochs, 0);
  RONDO_CHECK_LE(num_epochs, std::numeric_limits<std::int64_t>::max() / num_prompts_);
  return num_epochs * num_prompts_ / config_.batch_size;
}

}  // namespace rondo::data
