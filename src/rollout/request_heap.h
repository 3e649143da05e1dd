// RequestHeap: requests by priority, with update in place and a walk in order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "rollout/id_vector.h"
#include "rollout/request.h"

namespace rondo::rollout {

struct BestFirst {
  static bool before(const Priority& a, const Priority& b) { return a < b; }
};
struct WorstFirst {
  static bool before(const Priority& a, const Priority& b) { return b < a; }
};

/// Where each request stands in the one heap that holds it. Heaps that never share a request share one of
/// these, so thousands of small heaps cost no index of their own.
using HeapPlaces = IdVector<RequestSlot, std::int32_t>;

/// A 4-ary heap with the keys inside: push, erase and update are O(log n), top is O(1).
///
/// Does not own the places; they must hold every request pushed. Walk visits the first k in O(k log k)
/// without changing anything. Erasing what is not in it is a bug and aborts. One owner thread.
template <class Order>
class RequestHeap final {
 public:
  struct Entry {
    Priority priority;
    RequestSlot slot;
  };

  bool empty() const { return entries_.empty(); }
  std::int32_t size() const { return static_cast<std::int32_t>(entries_.size()); }
  const Entry& top() const { return entry(0); }
  /// In no order.
  const std::vector<Entry>& entries() const { return entries_; }

  void push(HeapPlaces& places, RequestSlot slot, const Priority& priority) {
    entries_.push_back({priority, slot});
    places[slot] = size() - 1;
    sift_up(places, size() - 1);
  }

  void erase(HeapPlaces& places, RequestSlot slot) {
    const std::int32_t place = checked_place(places, slot);
    const Entry last = entries_.back();
    entries_.pop_back();
    if (place == size()) return;
    put(places, place, last);
    settle(places, place);
  }

  void update(HeapPlaces& places, RequestSlot slot, const Priority& priority) {
    const std::int32_t place = checked_place(places, slot);
    entry(place).priority = priority;
    settle(places, place);
  }

  /// Visits the entries from the first on; void once the heap changes.
  class Walk final {
   public:
    explicit Walk(const RequestHeap& heap) : heap_(&heap) {
      if (!heap.empty()) frontier_.push_back(0);
    }
    bool done() const { return frontier_.empty(); }
    const Entry& current() const { return heap_->entry(frontier_.front()); }
    void advance() {
      const std::int32_t place = frontier_.front();
      std::ranges::pop_heap(frontier_, later());
      frontier_.pop_back();
      for (std::int32_t child = first_child(place); child < end_child(*heap_, place); ++child) {
        frontier_.push_back(child);
        std::ranges::push_heap(frontier_, later());
      }
    }

   private:
    auto later() const {
      return [heap = heap_](std::int32_t a, std::int32_t b) {
        return Order::before(heap->entry(b).priority, heap->entry(a).priority);
      };
    }
    const RequestHeap* heap_;
    std::vector<std::int32_t> frontier_;  // a heap of places, the next one in front
  };

  /// Aborts unless order and places agree. O(n).
  void check_invariants(const HeapPlaces& places) const {
    for (std::int32_t place = 0; place < size(); ++place) {
      RONDO_CHECK_EQ(places[entry(place).slot], place);
      if (place > 0) RONDO_CHECK(!Order::before(entry(place).priority, entry(parent(place)).priority));
    }
  }

 private:
  static constexpr std::int32_t kArity = 4;
  static std::int32_t parent(std::int32_t place) { return (place - 1) / kArity; }
  static std::int32_t first_child(std::int32_t place) { return kArity * place + 1; }
  static std::int32_t end_child(const RequestHeap& heap, std::int32_t place) {
    return std::min(first_child(place) + kArity, heap.size());
  }
  Entry& entry(std::int32_t place) { return entries_[static_cast<std::size_t>(place)]; }
  const Entry& entry(std::int32_t place) const { return entries_[static_cast<std::size_t>(place)]; }

  std::int32_t checked_place(const HeapPlaces& places, RequestSlot slot) const {
    const std::int32_t place = places[slot];
    RONDO_CHECK(place >= 0 && place < size() && entry(place).slot == slot);
    return place;
  }
  void put(HeapPlaces& places, std::int32_t place, const Entry& value) {
    entry(place) = value;
    places[value.slot] = place;
  }
  void settle(HeapPlaces& places, std::int32_t place) { sift_down(places, sift_up(places, place)); }

  std::int32_t sift_up(HeapPlaces& places, std::int32_t place) {
    const Entry moving = entry(place);
    while (place > 0 && Order::before(moving.priority, entry(parent(place)).priority)) {
      put(places, place, entry(parent(place)));
      place = parent(place);
    }
    put(places, place, moving);
    return place;
  }

  void sift_down(HeapPlaces& places, std::int32_t place) {
    const Entry moving = entry(place);
    while (first_child(place) < size()) {
      std::int32_t first = first_child(place);
      for (std::int32_t child = first + 1; child < end_child(*this, place); ++child) {
        if (Order::before(entry(child).priority, entry(first).priority)) first = child;
      }
      if (!Order::before(entry(first).priority, moving.priority)) break;
      put(places, place, entry(first));
      place = first;
    }
    put(places, place, moving);
  }

  std::vector<Entry> entries_;
};

}  // namespace rondo::rollout
