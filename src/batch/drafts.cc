#include "batch/drafts.h"

#include "base/check.h"

namespace rondo::batch {

void Drafts::clear() {
  for (const Slot slot : used_) by_slot_[static_cast<std::size_t>(slot.value())] = {};
  used_.clear();
  tokens_.clear();
  parents_.clear();
}

Drafts::Entry& Drafts::open(Slot slot, std::size_t size) {
  const auto index = static_cast<std::size_t>(slot.value());
  if (index >= by_slot_.size()) by_slot_.resize(index + 1);
  Entry& entry = by_slot_[index];
  RONDO_CHECK_EQ(entry.size, 0);
  entry = {.begin = static_cast<std::int32_t>(tokens_.size()), .size = static_cast<std::int32_t>(size)};
  used_.push_back(slot);
  return entry;
}

void Drafts::add(Slot slot, std::span<const Token> tokens, std::span<const std::int32_t> parents) {
  RONDO_CHECK_EQ(tokens.size(), parents.size());
  open(slot, tokens.size());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  for (std::size_t i = 0; i < parents.size(); ++i) {
    RONDO_CHECK(parents[i] >= -1 && parents[i] < static_cast<std::int32_t>(i));
    parents_.push_back(parents[i]);
  }
}

void Drafts::add_chain(Slot slot, std::span<const Token> tokens) {
  open(slot, tokens.size());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(tokens.size()); ++i) parents_.push_back(i - 1);
}

Draft Drafts::find(Slot slot) const {
  const auto index = static_cast<std::size_t>(slot.value());
  if (index >= by_slot_.size()) return {};
  const auto begin = static_cast<std::size_t>(by_slot_[index].begin);
  const auto size = static_cast<std::size_t>(by_slot_[index].size);
  return {std::span(tokens_).subspan(begin, size), std::span(parents_).subspan(begin, size)};
}

}  // namespace rondo::batch
