// WaitingQueue: the waiting requests, by priority and by how long they have waited.
#pragma once

#include <cstdint>
#include <vector>

#include "rollout/id_vector.h"
#include "rollout/request.h"
#include "rollout/request_heap.h"

namespace rondo::rollout {

/// Two orders over the same requests: the policy's, and first come first served.
///
/// O(log n) per change. Does not know what the requests are. Asking an empty queue for its first is a bug and
/// aborts. One owner thread.
class WaitingQueue final {
 public:
  bool empty() const { return heap_.empty(); }
  std::int32_t size() const { return heap_.size(); }
  /// Which the policy serves next.
  RequestSlot best() const;
  /// Which has been here longest.
  RequestSlot oldest() const;
  /// The first `count` by policy, in order; O(count log count).
  std::vector<RequestSlot> first(std::int32_t count) const;

  void push(RequestSlot request, const Priority& priority);
  void erase(RequestSlot request);
  void update(RequestSlot request, const Priority& priority) { heap_.update(places_, request, priority); }

  /// Aborts unless both orders hold the same requests. O(n).
  void check_invariants() const;

 private:
  struct Links {
    RequestSlot before;
    RequestSlot after;
  };

  RequestHeap<BestFirst> heap_;
  HeapPlaces places_;
  IdVector<RequestSlot, Links> links_;
  RequestSlot oldest_;
  RequestSlot newest_;
};

}  // namespace rondo::rollout
