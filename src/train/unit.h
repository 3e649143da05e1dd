// TrainUnit: what one gradient is defined over, and UnitRows, its rows without padding.
#pragma once

#include <cstdint>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "kernels/types.h"

namespace rondo::train {

/// One sampled response and what its loss needs.
struct TrainSample {
  std::vector<Token> tokens;        // the response, its end token included if it produced one
  std::vector<float> old_logprobs;  // [tokens], of the policy that sampled it
  std::vector<float> ref_logprobs;  // [tokens], of the reference model; empty without a KL term
  float advantage = 0;
  float weight = 1;  // of each of its tokens in the loss, before the step's normaliser
};

/// A prompt and (a split of) its group of responses. Its gradient is the sum over its tokens, computed over
/// its rows: the prompt once, then the samples in index order.
struct TrainUnit {
  std::vector<Token> prompt;  // at least one token
  std::vector<TrainSample> samples;
};

/// A predicted token: the head's row `head_row` predicts token `index` of sample `sample`.
struct Target {
  std::int32_t head_row;
  std::int32_t sample;
  std::int32_t index;
  Token token;
};

/// The rows of a unit: tokens and positions, spans and block tables for attention over a scratch KV pool, and
/// which rows the head reads. A sample's last token has no row, since nothing is predicted after it.
class UnitRows final {
 public:
  explicit UnitRows(const TrainUnit& unit);
  UnitRows(const UnitRows&) = delete;
  UnitRows& operator=(const UnitRows&) = delete;

  std::int32_t rows() const { return static_cast<std::int32_t>(tokens_.size()); }
  const std::vector<Token>& tokens() const { return tokens_; }
  const std::vector<std::int32_t>& positions() const { return positions_; }

  /// Span 0 is the prompt; then one per sample that has rows.
  const std::vector<kernels::SequenceSpan>& spans() const { return spans_; }
  /// Unit row that owns position p of span i: position_rows()[span_position_begin()[i] + p].
  const std::vector<std::int32_t>& position_rows() const { return position_rows_; }
  const std::vector<std::int64_t>& span_position_begin() const { return span_position_begin_; }
  std::int32_t kv_blocks() const { return kv_blocks_; }
  /// Block that holds the prompt's partly filled tail, or -1; and the sample blocks that start as its copy.
  std::int32_t tail_block() const { return tail_block_; }
  const std::vector<std::int32_t>& tail_copies() const { return tail_copies_; }

  /// Rows that the head reads, ascending, and what they predict, by head row then sample.
  const std::vector<std::int32_t>& head_rows() const { return head_rows_; }
  const std::vector<Target>& targets() const { return targets_; }

 private:
  void add_prompt(const TrainUnit& unit);
  void add_sample(const TrainUnit& unit, std::int32_t sample);
  void add_targets(const TrainUnit& unit);

  std::vector<Token> tokens_;
  std::vector<std::int32_t> positions_;
  std::vector<kernels::SequenceSpan> spans_;
  std::vector<std::vector<std::int32_t>> block_tables_;  // by span
  std::vector<std::int32_t> position_rows_;
  std::vector<std::int64_t> span_position_begin_;
  std::vector<std::int32_t> first_row_;  // by sample; meaningless for samples without rows
  std::int32_t kv_blocks_ = 0;
  std::int32_t tail_block_ = -1;
  std::vector<std::int32_t> tail_copies_;
  std::vector<std::int32_t> head_rows_;
  std::vector<Target> targets_;
};

/// Splits a group into units of at most `unit_tokens` rows (prompt counted once per unit), by sample index:
/// the partition follows from lengths alone. A sample that is longer still is a unit of its own.
std::vector<TrainUnit> split_group(TrainUnit group, std::int64_t unit_tokens);

}  // namespace rondo::train
