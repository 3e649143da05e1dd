// LoadIndex: instances by load, to find the least loaded one that has room.
#pragma once

#include <cstdint>
#include <optional>

#include "base/id.h"
#include "rollout/id_vector.h"

namespace rondo::rollout {

/// A search tree over (load, instance) whose nodes know the most room below them.
///
/// Every call is O(log n) expected (a treap; its priorities are a hash of the id, so equal histories give
/// equal trees). Knows nothing of blocks or requests: load and room are plain numbers. One owner thread.
class LoadIndex final {
 public:
  /// Adds the instance, or replaces its numbers. room < 0: it takes nothing now.
  void set(InstanceId instance, std::int64_t load, std::int64_t room);
  /// Removes it, if it is there.
  void erase(InstanceId instance);

  bool empty() const { return root_ == kNone; }
  /// The instance with room >= `need` (need >= 0) of the least load, the lowest id among equals.
  std::optional<InstanceId> least_loaded(std::int64_t need) const;
  /// The least and the greatest load; 0 without instances.
  std::int64_t least() const;
  std::int64_t greatest() const;
  /// Aborts unless order, heap property and room sums hold. O(n).
  void check_invariants() const;

 private:
  static constexpr std::int32_t kNone = -1;
  struct Node {
    std::int64_t load = 0;
    std::int64_t room = 0;
    std::int64_t most_room = 0;  // in its subtree
    std::int32_t left = kNone;
    std::int32_t right = kNone;
    bool present = false;
  };
  struct Halves {
    std::int32_t low;
    std::int32_t high;
  };

  Node& at(std::int32_t node) { return nodes_[InstanceId(node)]; }
  const Node& at(std::int32_t node) const { return nodes_[InstanceId(node)]; }
  bool precedes(std::int32_t a, std::int32_t b) const;
  std::int64_t most_room(std::int32_t node) const;
  void refresh(std::int32_t node);
  Halves split(std::int32_t node, std::int32_t pivot);  // before the pivot, and the rest
  std::int32_t merge(std::int32_t low, std::int32_t high);
  std::int32_t without(std::int32_t node, std::int32_t victim);
  std::int32_t check_subtree(std::int32_t node) const;

  IdVector<InstanceId, Node> nodes_;
  std::int32_t root_ = kNone;
};

}  // namespace rondo::rollout
