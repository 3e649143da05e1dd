#include "rollout/load_index.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace rondo::rollout {
namespace {

// A bijective mix of 32 bits, so that neighbouring ids get unrelated priorities.
std::uint32_t heap_priority(std::int32_t node) {
  auto x = static_cast<std::uint32_t>(node) + 0x9e3779b9U;
  x = (x ^ (x >> 16)) * 0x85ebca6bU;
  x = (x ^ (x >> 13)) * 0xc2b2ae35U;
  return x ^ (x >> 16);
}

}  // namespace

bool LoadIndex::precedes(std::int32_t a, std::int32_t b) const {
  return std::pair(at(a).load, a) < std::pair(at(b).load, b);
}

std::int64_t LoadIndex::most_room(std::int32_t node) const {
  return node == kNone ? std::numeric_limits<std::int64_t>::min() : at(node).most_room;
}

void LoadIndex::refresh(std::int32_t node) {
  Node& n = at(node);
  n.most_room = std::max({n.room, most_room(n.left), most_room(n.right)});
}

LoadIndex::Halves LoadIndex::split(std::int32_t node, std::int32_t pivot) {
  if (node == kNone) return {kNone, kNone};
  if (precedes(node, pivot)) {
    const Halves halves = split(at(node).right, pivot);
    at(node).right = halves.low;
    refresh(node);
    return {node, halves.high};
  }
  const Halves halves = split(at(node).left, pivot);
  at(node).left = halves.high;
  refresh(node);
  return {halves.low, node};
}

std::int32_t LoadIndex::merge(std::int32_t low, std::int32_t high) {
  if (low == kNone) return high;
  if (high == kNone) return low;
  if (heap_priority(low) > heap_priority(high)) {
    at(low).right = merge(at(low).right, high);
    refresh(low);
    return low;
  }
  at(high).left = merge(low, at(high).left);
  refresh(high);
  return high;
}

std::int32_t LoadIndex::without(std::int32_t node, std::int32_t victim) {
  RONDO_CHECK_NE(node, kNone);
  if (node == victim) return merge(at(node).left, at(node).right);
  if (precedes(victim, node)) {
    at(node).left = without(at(node).left, victim);
  } else {
    at(node).right = without(at(node).right, victim);
  }
  refresh(node);
  return node;
}

void LoadIndex::set(InstanceId instance, std::int64_t load, std::int64_t room) {
  nodes_.extend_to(instance);
  erase(instance);
  const std::int32_t node = instance.value();
  at(node) = {.load = load, .room = room, .most_room = room, .present = true};
  const Halves halves = split(root_, node);
  root_ = merge(merge(halves.low, node), halves.high);
}

void LoadIndex::erase(InstanceId instance) {
  if (!nodes_.contains(instance) || !nodes_[instance].present) return;
  root_ = without(root_, instance.value());
  nodes_[instance].present = false;
}

std::optional<InstanceId> LoadIndex::least_loaded(std::int64_t need) const {
  std::int32_t node = root_;
  while (node != kNone) {
    const Node& n = at(node);
    if (most_room(n.left) >= need) {
      node = n.left;
    } else if (n.room >= need) {
      return InstanceId(node);
    } else if (most_room(n.right) >= need) {
      node = n.right;
    } else {
      break;
    }
  }
  return std::nullopt;
}

std::int64_t LoadIndex::least() const {
  if (root_ == kNone) return 0;
  std::int32_t least = root_;
  while (at(least).left != kNone) least = at(least).left;
  return at(least).load;
}

std::int64_t LoadIndex::greatest() const {
  if (root_ == kNone) return 0;
  std::int32_t greatest = root_;
  while (at(greatest).right != kNone) greatest = at(greatest).right;
  return at(greatest).load;
}

void LoadIndex::check_invariants() const {
  const auto num_present = std::ranges::count_if(nodes_, [](const Node& node) { return node.present; });
  RONDO_CHECK_EQ(check_subtree(root_), num_present);
}

std::int32_t LoadIndex::check_subtree(std::int32_t node) const {
  if (node == kNone) return 0;
  const Node& n = at(node);
  RONDO_CHECK(n.present);
  RONDO_CHECK_EQ(n.most_room, std::max({n.room, most_room(n.left), most_room(n.right)}));
  for (const std::int32_t child : {n.left, n.right}) {
    if (child != kNone) RONDO_CHECK_GT(heap_priority(node), heap_priority(child));
  }
  if (n.left != kNone) RONDO_CHECK(precedes(n.left, node));
  if (n.right != kNone) RONDO_CHECK(precedes(node, n.right));
  return 1 + check_subtree(n.left) + check_subtree(n.right);
}

}  // namespace rondo::rollout
