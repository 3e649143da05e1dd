#include "train/unit.h"

#include <numeric>
#include <utility>

#include "base/check.h"

namespace rondo::train {
namespace {

constexpr std::int32_t kBlock = kernels::kAttentionBlock;

std::int32_t size32(const std::vector<Token>& tokens) {
  return static_cast<std::int32_t>(tokens.size());
}

// Rows of a sample: all its tokens but the last.
std::int32_t sample_rows(const TrainSample& sample) {
  return sample.tokens.empty() ? 0 : size32(sample.tokens) - 1;
}

}  // namespace

UnitRows::UnitRows(const TrainUnit& unit) {
  RONDO_CHECK(!unit.prompt.empty());
  const std::size_t num_samples = unit.samples.size();
  spans_.reserve(num_samples + 1);
  block_tables_.reserve(num_samples + 1);
  first_row_.resize(num_samples, 0);
  add_prompt(unit);
  for (std::size_t i = 0; i < num_samples; ++i) add_sample(unit, static_cast<std::int32_t>(i));
  add_targets(unit);
}

void UnitRows::add_prompt(const TrainUnit& unit) {
  const std::int32_t length = size32(unit.prompt);
  kv_blocks_ = (length + kBlock - 1) / kBlock;
  tail_block_ = length % kBlock == 0 ? -1 : kv_blocks_ - 1;
  std::vector<std::int32_t> table(static_cast<std::size_t>(kv_blocks_));
  std::iota(table.begin(), table.end(), 0);
  block_tables_.push_back(std::move(table));
  spans_.push_back({block_tables_.back().data(), 0, 0, length});
  span_position_begin_.push_back(0);
  for (std::int32_t p = 0; p < length; ++p) {
    tokens_.push_back(unit.prompt[static_cast<std::size_t>(p)]);
    positions_.push_back(p);
    position_rows_.push_back(p);
  }
}

void UnitRows::add_sample(const TrainUnit& unit, std::int32_t sample) {
  const TrainSample& response = unit.samples[static_cast<std::size_t>(sample)];
  const std::int32_t count = sample_rows(response), prompt = size32(unit.prompt);
  if (count == 0) return;
  const std::int32_t first = rows();
  first_row_[static_cast<std::size_t>(sample)] = first;
  std::vector<std::int32_t> table(static_cast<std::size_t>(prompt / kBlock));
  std::iota(table.begin(), table.end(), 0);
  if (tail_block_ >= 0) tail_copies_.push_back(kv_blocks_);
  while (static_cast<std::int32_t>(table.size()) * kBlock < prompt + count) table.push_back(kv_blocks_++);
  block_tables_.push_back(std::move(table));
  spans_.push_back({block_tables_.back().data(), prompt, first, count});
  span_position_begin_.push_back(static_cast<std::int64_t>(position_rows_.size()));
  for (std::int32_t p = 0; p < prompt; ++p) position_rows_.push_back(p);
  for (std::int32_t i = 0; i < count; ++i) {
    tokens_.push_back(response.tokens[static_cast<std::size_t>(i)]);
    positions_.push_back(prompt + i);
    position_rows_.push_back(first + i);
  }
}

void UnitRows::add_targets(const TrainUnit& unit) {
  // The prompt's last row predicts the first token of every sample; a sample's row i predicts its token i
  // + 1.
  head_rows_.push_back(size32(unit.prompt) - 1);
  for (std::size_t s = 0; s < unit.samples.size(); ++s)
    if (!unit.samples[s].tokens.empty())
      targets_.push_back({0, static_cast<std::int32_t>(s), 0, unit.samples[s].tokens[0]});
  for (std::size_t s = 0; s < unit.samples.size(); ++s) {
    const TrainSample& sample = unit.samples[s];
    for (std::int32_t i = 1; i < size32(sample.tokens); ++i) {
      head_rows_.push_back(first_row_[s] + i - 1);
      targets_.push_back({static_cast<std::int32_t>(head_rows_.size()) - 1, static_cast<std::int32_t>(s), i,
                          sample.tokens[static_cast<std::size_t>(i)]});
    }
  }
}

std::vector<TrainUnit> split_group(TrainUnit group, std::int64_t unit_tokens) {
  std::vector<TrainUnit> units;
  const auto prompt = static_cast<std::int64_t>(group.prompt.size());
  std::int64_t used = 0;
  for (TrainSample& sample : group.samples) {
    const std::int64_t rows = sample_rows(sample);
    if (units.empty() || (!units.back().samples.empty() && used + rows > unit_tokens)) {
      units.push_back({group.prompt, {}});
      used = prompt;
    }
    used += rows;
    units.back().samples.push_back(std::move(sample));
  }
  return units;
}

}  // namespace rondo::train
