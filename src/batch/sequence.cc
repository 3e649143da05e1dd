#include "batch/sequence.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace rondo::batch {

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStopToken:
      return "stop_token";
    case FinishReason::kStopString:
      return "stop_string";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

Sequence::Sequence(SequenceSpec spec, std::int64_t arrival, kv::BlockPool& pool)
    : spec_(std::move(spec)),
      arrival_(arrival),
      pool_(&pool),
      max_blocks_(static_cast<std::int32_t>(
          kv::blocks_for(static_cast<std::int64_t>(num_prompt()) + spec_.max_new_tokens - 1))),
      table_(pool) {}

Token Sequence::token(std::int32_t position) const {
  RONDO_CHECK(position >= 0 && position < num_known());
  const auto index = static_cast<std::size_t>(position);
  const std::vector<Token>& prompt = *spec_.prompt;
  return index < prompt.size() ? prompt[index] : response_[index - prompt.size()];
}

SequenceState Sequence::state() const {
  if (!resident_) return SequenceState::kWaiting;
  return num_remaining() == 1 ? SequenceState::kDecoding : SequenceState::kPrefilling;
}

void Sequence::admit(kv::BlockTable table, std::int32_t num_computed) {
  RONDO_CHECK(!resident_);
  RONDO_CHECK_LT(num_computed, num_known());
  table_ = std::move(table);
  table_.reserve(max_blocks_);
  response_.reserve(static_cast<std::size_t>(spec_.max_new_tokens));
  num_computed_ = num_computed;
  max_computed_ = std::max(max_computed_, num_computed);
  resident_ = true;
}

std::int32_t Sequence::advance(std::int32_t end) {
  RONDO_CHECK(resident_);
  RONDO_CHECK(end > num_computed_ && end <= num_known());
  RONDO_CHECK_LE(kv::blocks_for(end), table_.size());
  const std::int32_t again = std::clamp(max_computed_ - num_computed_, 0, end - num_computed_);
  num_computed_ = end;
  max_computed_ = std::max(max_computed_, end);
  return again;
}

void Sequence::append(Token token) {
  RONDO_CHECK_EQ(num_remaining(), 0);
  RONDO_CHECK_LT(static_cast<std::int32_t>(response_.size()), spec_.max_new_tokens);
  response_.push_back(token);
}

kv::BlockTable Sequence::preempt() {
  RONDO_CHECK(resident_);
  resident_ = false;
  num_computed_ = 0;
  return std::exchange(table_, kv::BlockTable(*pool_));
}

}  // namespace rondo::batch
