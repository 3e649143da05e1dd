#include "rollout/response_history.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/checksum.h"

namespace rondo::rollout {
namespace {

std::uint64_t key_of(std::span<const Token> prompt) {
  return checksum(std::as_bytes(prompt));
}

}  // namespace

ResponseHistory::ResponseHistory(const Config& config) : config_(config) {}

void ResponseHistory::add(std::span<const Token> prompt, std::span<const Token> response) {
  const auto [entry, is_new] = fresh_.try_emplace(key_of(prompt));
  if (is_new) fresh_order_.push_back(entry->first);
  // More than that would be forgotten again.
  if (std::ssize(entry->second) < config_.responses) {
    entry->second.emplace_back(response.begin(), response.end());
  }
}

void ResponseHistory::new_policy_version() {
  for (const Key key : fresh_order_) learn(key, std::move(fresh_.at(key)));
  fresh_order_.clear();
  fresh_.clear();
  while (bytes_ > config_.memory.bytes) forget(by_age_.front());
}

// The old ones follow, as far as there is room.
void ResponseHistory::learn(Key key, std::vector<std::vector<Token>> fresh) {
  Entry entry{.responses = std::move(fresh)};
  if (const auto old = known_.find(key); old != known_.end()) {
    std::ranges::move(old->second.responses, std::back_inserter(entry.responses));
    forget(key);
  }
  const auto kept = std::min(entry.responses.size(), static_cast<std::size_t>(config_.responses));
  entry.responses.resize(kept);
  for (const auto& response : entry.responses)
    entry.bytes += std::ssize(response) * std::int64_t{sizeof(Token)};
  bytes_ += entry.bytes;
  entry.age = by_age_.insert(by_age_.end(), key);
  known_.emplace(key, std::move(entry));
}

void ResponseHistory::forget(Key key) {
  const auto it = known_.find(key);
  bytes_ -= it->second.bytes;
  by_age_.erase(it->second.age);
  known_.erase(it);
}

std::span<const std::vector<Token>> ResponseHistory::responses(std::span<const Token> prompt) const {
  const auto it = known_.find(key_of(prompt));
  return it == known_.end() ? std::span<const std::vector<Token>>() : it->second.responses;
}

std::vector<std::int32_t> ResponseHistory::lengths(std::span<const Token> prompt) const {
  std::vector<std::int32_t> result;
  for (const auto& response : responses(prompt)) result.push_back(static_cast<std::int32_t>(response.size()));
  return result;
}

}  // namespace rondo::rollout
