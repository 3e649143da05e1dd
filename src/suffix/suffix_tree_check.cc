// What check_invariants() checks.
#include <algorithm>

#include "base/check.h"
#include "suffix/suffix_tree.h"

namespace rondo::suffix {

void SuffixTree::check_invariants() const {
  const std::vector<bool> used = nodes_.used();
  check_children(used);
  check_continuations(used);
  check_requests(used);
}

// Every inner node branches, is deeper than its parent, and occurs where its children do.
void SuffixTree::check_children(const std::vector<bool>& used) const {
  struct Children {
    NodeId all_xor = 0;
    std::uint32_t count = 0;
    std::uint32_t num_continuations = 0;
  };
  std::vector<Children> children(used.size());
  for (NodeId id = 0; id < used.size(); ++id) {
    if (!used[id] || id == kRoot) continue;
    const NodeId parent = at(id).parent;
    RONDO_CHECK(parent < used.size() && used[parent]);
    RONDO_CHECK_GT(at(id).depth, at(parent).depth);
    children[parent].all_xor ^= id;
    ++children[parent].count;
    children[parent].num_continuations += at(id).num_continuations;
  }
  RONDO_CHECK_EQ(at(kRoot).parent, kNone);
  RONDO_CHECK_GE(children[kRoot].count, 1U);
  for (NodeId id = 0; id < used.size(); ++id) {
    const Node& node = at(id);
    if (!used[id]) continue;
    RONDO_CHECK_EQ(node.children_xor, children[id].all_xor);
    if (children[id].count == 0) {
      RONDO_CHECK(id == kStart || node.num_continuations > 0 || node.num_children > 0);
      continue;
    }
    RONDO_CHECK_EQ(node.num_children, children[id].count);
    RONDO_CHECK_EQ(node.num_continuations, children[id].num_continuations);
    RONDO_CHECK(id == kRoot || children[id].count >= 2);
  }
}

// The lists are in order, add up, agree with the suffixes', and lead to where their contexts are.
void SuffixTree::check_continuations(const std::vector<bool>& used) const {
  std::vector<std::uint32_t> ends(used.size());  // sequences that end below a node
  for (const auto& [id, request] : requests_)
    for (NodeId node = request.leaf; node != kNone; node = at(node).parent) ++ends[node];
  std::size_t num_rests = 0;
  for (NodeId id = 0; id < used.size(); ++id) {
    if (!used[id]) continue;
    const Node& node = at(id);
    num_rests += node.list.rest != 0 ? 1 : 0;
    const auto entries = continuations_.entries(node.list);
    RONDO_CHECK(std::ranges::is_sorted(entries, ranks_before));
    std::uint32_t total = 0;
    for (std::size_t rank = 0; rank < entries.size(); ++rank) {
      const Continuation& entry = entries[rank];
      total += entry.count;
      RONDO_CHECK(*continuations_.find(node.list, entry.token) == entry);
      if (rank < kMaxRanked) {
        RONDO_CHECK(*continuations_.ranked(node.list, static_cast<std::int32_t>(rank)) == entry);
      }
      RONDO_CHECK(used[entry.target]);
      const Node& target = at(entry.target);
      RONDO_CHECK_GE(target.depth, deeper(node.depth));
      RONDO_CHECK_LT(at(target.parent).depth, deeper(node.depth));
      const std::uint32_t occurrences = target.num_continuations + ends[entry.target];
      if (static_cast<std::int32_t>(node.depth) < max_depth_) {
        RONDO_CHECK_EQ(entry.count, occurrences);
      } else {
        RONDO_CHECK_LE(entry.count, occurrences);
      }
      if (id == kRoot) continue;
      const Continuation* of_suffix = continuations_.find(at(node.parent).list, entry.token);
      RONDO_CHECK(of_suffix != nullptr && of_suffix->count >= entry.count);
    }
    RONDO_CHECK_EQ(node.num_continuations, total);
  }
  RONDO_CHECK_EQ(continuations_.num_rests(), num_rests);
}

// Following a sequence from the start ends at its leaf.
void SuffixTree::check_requests(const std::vector<bool>& used) const {
  std::vector<std::uint32_t> ends(used.size());
  std::int64_t num_tokens = 0;
  for (const auto& [id, request] : requests_) {
    NodeId leaf = kStart;
    for (const Token token : request.tokens) leaf = continuations_.find(at(leaf).list, token)->target;
    RONDO_CHECK_EQ(leaf, request.leaf);
    ++ends[leaf];
    num_tokens += static_cast<std::int64_t>(request.tokens.size());
  }
  RONDO_CHECK_EQ(num_tokens, num_tokens_);
  for (const auto& [id, request] : requests_)
    RONDO_CHECK_EQ(at(request.leaf).num_children, ends[request.leaf]);
  // All children and ends together: no other leaf claims an end.
  std::size_t below = 0;
  for (NodeId id = 0; id < used.size(); ++id) below += used[id] ? at(id).num_children : 0;
  RONDO_CHECK_EQ(below, num_nodes() - 1 + requests_.size());
  RONDO_CHECK_LE(memory_bytes(), max_bytes_);
}

}  // namespace rondo::suffix
