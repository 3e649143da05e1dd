#include "rollout/waiting_queue.h"

#include "base/check.h"

namespace rondo::rollout {

RequestSlot WaitingQueue::best() const {
  RONDO_CHECK(!empty());
  return heap_.top().slot;
}

RequestSlot WaitingQueue::oldest() const {
  RONDO_CHECK(!empty());
  return oldest_;
}

std::vector<RequestSlot> WaitingQueue::first(std::int32_t count) const {
  std::vector<RequestSlot> result;
  for (RequestHeap<BestFirst>::Walk walk(heap_); !walk.done() && std::ssize(result) < count; walk.advance()) {
    result.push_back(walk.current().slot);
  }
  return result;
}

void WaitingQueue::push(RequestSlot request, const Priority& priority) {
  places_.extend_to(request);
  links_.extend_to(request);
  heap_.push(places_, request, priority);
  links_[request] = {.before = newest_, .after = RequestSlot()};
  (newest_ == RequestSlot() ? oldest_ : links_[newest_].after) = request;
  newest_ = request;
}

void WaitingQueue::erase(RequestSlot request) {
  heap_.erase(places_, request);
  const Links links = links_[request];
  (links.before == RequestSlot() ? oldest_ : links_[links.before].after) = links.after;
  (links.after == RequestSlot() ? newest_ : links_[links.after].before) = links.before;
}

void WaitingQueue::check_invariants() const {
  heap_.check_invariants(places_);
  std::int32_t count = 0;
  RequestSlot before;
  for (RequestSlot at = oldest_; at != RequestSlot(); at = links_[at].after) {
    RONDO_CHECK_EQ(links_[at].before, before);
    RONDO_CHECK(places_[at] < heap_.size());
    before = at;
    ++count;
  }
  RONDO_CHECK_EQ(before, newest_);
  RONDO_CHECK_EQ(count, heap_.size());
}

}  // namespace rondo::rollout
