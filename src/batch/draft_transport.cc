#include "batch/draft_transport.h"

namespace rondo::batch {
namespace {

constexpr std::int64_t kDeltaBytes = 24;  // group, request, count, length
constexpr std::int64_t kGroupBytes = 12;  // group, length
constexpr std::int64_t kCountBytes = 16;  // request, two counts

}  // namespace

void DraftDeltas::clear() {
  entries_.clear();
  tokens_.clear();
}

void DraftDeltas::add(const DraftDelta& delta) {
  entries_.push_back({.group = delta.group,
                      .request = delta.request,
                      .previous_count = delta.previous_count,
                      .num_tokens = static_cast<std::int32_t>(delta.tokens.size()),
                      .begin = tokens_.size()});
  tokens_.insert(tokens_.end(), delta.tokens.begin(), delta.tokens.end());
}

DraftDelta DraftDeltas::operator[](std::size_t index) const {
  const Entry& entry = entries_[index];
  return {.group = entry.group,
          .request = entry.request,
          .previous_count = entry.previous_count,
          .tokens = std::span(tokens_).subspan(entry.begin, static_cast<std::size_t>(entry.num_tokens))};
}

std::int64_t DraftDeltas::payload_bytes() const {
  return kDeltaBytes * std::ssize(entries_) + static_cast<std::int64_t>(sizeof(Token)) * std::ssize(tokens_);
}

void DraftFetch::clear() {
  groups.clear();
  counts.clear();
}

std::span<const DraftCount> DraftFetch::counts_of(const Group& group) const {
  return std::span(counts).subspan(group.begin, group.size);
}

std::int64_t DraftFetch::payload_bytes() const {
  return kGroupBytes * std::ssize(groups) + kCountBytes * std::ssize(counts);
}

void DraftReplies::clear() {
  updates.clear();
  fetches.clear();
}

}  // namespace rondo::batch
