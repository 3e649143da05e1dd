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
      response_(std::move(spec_.response)),
      table_(pool),
      num_stored_(spec_.num_stored) {
  set_chunk(spec_.chunk_tokens);
}

void Sequence::set_chunk(std::int32_t chunk_tokens) {
  const auto length = static_cast<std::int32_t>(response_.size());
  const std::int32_t left = spec_.max_new_tokens - length;
  chunk_end_ = length + (chunk_tokens > 0 ? std::min(chunk_tokens, left) : left);
}

std::int32_t Sequence::peak_blocks() const {
  return static_cast<std::int32_t>(kv::blocks_for(static_cast<std::int64_t>(num_prompt()) + chunk_end_ - 1));
}

Token Sequence::token(std::int32_t position) const {
  RONDO_CHECK(position >= 0 && position < num_known());
  const auto index = static_cast<std::size_t>(position);
  const std::vector<Token>& prompt = *spec_.prompt;
  return index < prompt.size() ? prompt[index] : response_[index - prompt.size()];
}

SequenceState Sequence::state() const {
  if (parked_) return SequenceState::kParked;
  if (!resident_) return SequenceState::kWaiting;
  return num_remaining() == 1 ? SequenceState::kDecoding : SequenceState::kPrefilling;
}

void Sequence::admit(kv::BlockTable table, std::int32_t num_computed) {
  RONDO_CHECK(!resident_ && !parked_);
  RONDO_CHECK_LT(num_computed, num_known());
  table_ = std::move(table);
  table_.reserve(kv::blocks_for(static_cast<std::int64_t>(num_prompt()) + spec_.max_new_tokens));
  response_.reserve(static_cast<std::size_t>(spec_.max_new_tokens));
  num_computed_ = num_computed;
  num_stored_ = 0;  // what was put by is used up
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
  RONDO_CHECK_GT(num_left(), 0);
  response_.push_back(token);
}

void Sequence::replace_tail(std::int32_t num_kept, std::span<const BlockId> tail) {
  RONDO_CHECK(resident_);
  table_.truncate(num_kept);
  table_.acquire(tail);
}

void Sequence::park() {
  RONDO_CHECK(resident_ && !parked_);
  RONDO_CHECK_EQ(num_remaining(), 1);
  parked_ = true;
}

void Sequence::resume(std::int32_t chunk_tokens) {
  RONDO_CHECK(parked_);
  parked_ = false;
  set_chunk(chunk_tokens);
}

kv::BlockTable Sequence::preempt() {
  RONDO_CHECK(resident_);
  resident_ = false;
  num_computed_ = 0;
  return std::exchange(table_, kv::BlockTable(*pool_));
}

}  // namespace rondo::batch
