#include "suffix/continuation_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace rondo::suffix {
namespace {

constexpr std::uint32_t kLog2FirstSlots = 4;

}  // namespace

ContinuationTable::ContinuationTable()
    : slots_(std::size_t{1} << kLog2FirstSlots), log2_slots_(kLog2FirstSlots), ranked_{} {}

std::size_t ContinuationTable::home(Token token) const {
  return (static_cast<std::uint32_t>(token) * 0x9E3779B1U) >> (32 - log2_slots_);
}

// Where `token` is, or the empty slot where it would go.
std::size_t ContinuationTable::slot_of(Token token) const {
  std::size_t slot = home(token);
  while (slots_[slot].count != 0 && slots_[slot].token != token) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

Continuation* ContinuationTable::find(Token token) {
  Continuation& entry = slots_[slot_of(token)];
  return entry.count == 0 ? nullptr : &entry;
}

const Continuation* ContinuationTable::find(Token token) const {
  const Continuation& entry = slots_[slot_of(token)];
  return entry.count == 0 ? nullptr : &entry;
}

std::size_t ContinuationTable::num_ranked() const {
  return std::min(size_, ranked_.size());
}

const Continuation* ContinuationTable::ranked(std::size_t rank) const {
  return rank < num_ranked() ? find(ranked_[rank].token) : nullptr;
}

// ranked_.size(): not among the first.
std::size_t ContinuationTable::rank_of(Token token) const {
  for (std::size_t rank = 0; rank < num_ranked(); ++rank)
    if (ranked_[rank].token == token) return rank;
  return ranked_.size();
}

std::vector<Continuation> ContinuationTable::entries() const {
  std::vector<Continuation> result;
  std::ranges::copy_if(slots_, std::back_inserter(result),
                       [](const auto& entry) { return entry.count != 0; });
  return result;
}

Continuation& ContinuationTable::place(const Continuation& entry) {
  Continuation& slot = slots_[slot_of(entry.token)];
  RONDO_CHECK_EQ(slot.count, 0U);
  slot = entry;
  return slot;
}

void ContinuationTable::resize(std::uint32_t log2_slots) {
  std::vector<Continuation> old(std::size_t{1} << log2_slots);
  old.swap(slots_);
  log2_slots_ = log2_slots;
  for (const Continuation& entry : old)
    if (entry.count != 0) place(entry);
}

// Brings a raised rank to where it belongs.
void ContinuationTable::move_up(std::size_t rank) {
  const auto before = [](const Ranked& a, const Ranked& b) {
    return ranks_before({a.token, a.count}, {b.token, b.count});
  };
  for (; rank > 0 && before(ranked_[rank], ranked_[rank - 1]); --rank)
    std::swap(ranked_[rank], ranked_[rank - 1]);
}

// Puts an entry that is not among the first there if it belongs there. size_ counts it already.
void ContinuationTable::offer(const Continuation& entry) {
  Ranked& last = ranked_[num_ranked() - 1];
  const bool is_free = size_ <= ranked_.size();
  if (!is_free && !ranks_before(entry, {last.token, last.count})) return;
  last = {entry.token, entry.count};
  move_up(num_ranked() - 1);
}

void ContinuationTable::rank_all() {
  const std::size_t size = size_;
  size_ = 0;
  for (const Continuation& entry : slots_) {
    if (entry.count == 0) continue;
    ++size_;
    offer(entry);
  }
  RONDO_CHECK_EQ(size_, size);
}

void ContinuationTable::insert(const Continuation& entry) {
  if (is_full()) resize(log2_slots_ + 1);
  place(entry);
  ++size_;
  offer(entry);
}

// Moves later entries of a probe sequence into the empty slot `gap`, so that no search stops short.
void ContinuationTable::close_gap(std::size_t gap) {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t slot = (gap + 1) & mask; slots_[slot].count != 0; slot = (slot + 1) & mask) {
    const std::size_t distance = (slot - home(slots_[slot].token)) & mask;
    if (distance < ((slot - gap) & mask)) continue;
    slots_[gap] = slots_[slot];
    slots_[slot] = {};
    gap = slot;
  }
}

void ContinuationTable::erase(Token token) {
  const std::size_t slot = slot_of(token);
  RONDO_CHECK_GT(slots_[slot].count, 0U);
  const bool was_ranked = rank_of(token) < ranked_.size();
  slots_[slot] = {};
  close_gap(slot);
  --size_;
  if (was_ranked) rank_all();
  if (size_ * 8 < slots_.size() && log2_slots_ > kLog2FirstSlots) resize(log2_slots_ - 1);
}

void ContinuationTable::increment(Continuation& entry) {
  ++entry.count;
  const std::size_t rank = rank_of(entry.token);
  if (rank == ranked_.size()) return offer(entry);
  ranked_[rank].count = entry.count;
  move_up(rank);
}

void ContinuationTable::decrement(Continuation& entry) {
  --entry.count;
  std::size_t rank = rank_of(entry.token);
  if (rank == ranked_.size()) return;
  ranked_[rank].count = entry.count;
  for (; rank + 1 < num_ranked(); ++rank) move_up(rank + 1);
  // Only when it has become the last of the first may one from outside rank before it.
  if (ranked_[num_ranked() - 1].token == entry.token) rank_all();
}

void ContinuationTable::exchange(Token token, const Continuation& entry) {
  const std::size_t slot = slot_of(token);
  RONDO_CHECK_GT(slots_[slot].count, 0U);
  const std::size_t rank = std::min(rank_of(token), num_ranked() - 1);
  slots_[slot] = {};
  close_gap(slot);
  place(entry);
  std::copy_backward(ranked_.begin(), ranked_.begin() + static_cast<std::ptrdiff_t>(rank),
                     ranked_.begin() + static_cast<std::ptrdiff_t>(rank) + 1);
  ranked_[0] = {entry.token, entry.count};
}

}  // namespace rondo::suffix
