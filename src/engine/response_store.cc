#include "engine/response_store.h"

#include <utility>

#include "base/check.h"

namespace rondo::engine {
namespace {

template <class T>
void append_rest(std::vector<T>& to, std::span<const T> whole) {
  RONDO_CHECK_LE(to.size(), whole.size());
  to.insert(to.end(), whole.begin() + std::ssize(to), whole.end());
}

}  // namespace

void ResponseStore::add(Request request) {
  const std::lock_guard lock(mutex_);
  const RequestId id = request.id;
  RONDO_CHECK(entries_.emplace(id, Entry{std::move(request), std::nullopt}).second);
}

Request ResponseStore::request(RequestId id) const {
  const std::lock_guard lock(mutex_);
  return entries_.at(id).request;
}

void ResponseStore::extend(RequestId id, const ProgressView& progress) {
  const std::lock_guard lock(mutex_);
  Progress& known = entries_.at(id).request.progress;
  append_rest(known.tokens, progress.tokens);
  append_rest(known.logprobs, progress.logprobs);
  append_rest(known.entropies, progress.entropies);
}

void ResponseStore::finish(Response response) {
  const std::lock_guard lock(mutex_);
  const RequestId id = response.id;
  entries_.at(id).response = std::move(response);
}

std::optional<Response> ResponseStore::take(RequestId id) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(id);
  if (it == entries_.end() || !it->second.response) return std::nullopt;
  std::optional<Response> response = std::move(it->second.response);
  entries_.erase(it);
  return response;
}

void ResponseStore::clear() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
}

}  // namespace rondo::engine
