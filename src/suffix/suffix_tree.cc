#include "suffix/suffix_tree.h"

#include <algorithm>

#include "base/check.h"

namespace rondo::suffix {
namespace {

constexpr std::size_t kMinBytes = std::size_t{1} << 16;  // below, not even a few tokens fit
constexpr std::uint32_t kMaxChildren = (1U << 24) - 1;

// An entry of the map of requests: the pair, the map's own link and hash.
constexpr std::size_t kRequestBytes = 128;

// A bound on the memory that one more token takes.
std::size_t growth_of(const std::vector<Token>& tokens) {
  return tokens.size() < tokens.capacity() ? 0 : (tokens.capacity() + 1) * sizeof(Token);
}

}  // namespace

Result<void> SuffixTree::Config::validate() const {
  if (max_depth < 1 || max_depth > kLongestContext) {
    return fail(Code::kInvalidArgument, "max_depth = {} must lie in 1..{}", max_depth, kLongestContext);
  }
  if (max_bytes < kMinBytes)
    return fail(Code::kInvalidArgument, "max_bytes = {} must be at least {}", max_bytes, kMinBytes);
  return {};
}

SuffixTree::SuffixTree(const Config& config) : max_depth_(config.max_depth), max_bytes_(config.max_bytes) {
  RONDO_CHECK(config.validate().has_value());
  RONDO_CHECK_EQ(new_node(kNone, 0), kRoot);
  RONDO_CHECK_EQ(new_node(kRoot, 1), kStart);
}

std::uint32_t SuffixTree::deeper(std::uint32_t depth) const {
  return std::min(depth + 1, static_cast<std::uint32_t>(max_depth_));
}

NodeId SuffixTree::new_node(NodeId parent, std::uint32_t depth) {
  const NodeId node = nodes_.allocate();
  at(node) = {.parent = parent, .list = {}, .depth = depth & 0xFF};
  if (parent != kNone) add_child(parent, node);
  return node;
}

void SuffixTree::free_node(NodeId node) {
  continuations_.clear(at(node).list);
  nodes_.release(node);
}

void SuffixTree::add_child(NodeId parent, NodeId child) {
  Node& node = at(parent);
  RONDO_CHECK_LT(node.num_children + 0U, kMaxChildren);
  ++node.num_children;
  node.children_xor ^= child;
}

void SuffixTree::remove_child(NodeId parent, NodeId child) {
  --at(parent).num_children;
  at(parent).children_xor ^= child;
}

// Whether one more token surely stays within max_bytes, given what its sequence may take by itself.
bool SuffixTree::has_room(std::size_t sequence_growth) const {
  const auto num_lists =
      static_cast<std::size_t>(max_depth_) + 2;  // the path of a leaf, and what is split off
  const std::size_t growth = nodes_.growth_bound(2) + continuations_.growth_bound(num_lists, at(kRoot).list);
  return memory_bytes() + growth + sequence_growth <= max_bytes_;
}

std::size_t SuffixTree::append(RequestId request, std::span<const Token> tokens) {
  auto it = requests_.find(request);
  if (it == requests_.end()) {
    if (!has_room(kRequestBytes + 4 * (requests_.bucket_count() + 4) * sizeof(void*))) return 0;
    it = requests_.try_emplace(request).first;
    ++at(kStart).num_children;
    sequence_bytes_ += kRequestBytes;
  }
  Request& sequence = it->second;
  std::size_t taken = 0;
  --at(sequence.leaf).num_children;
  for (; taken < tokens.size() && has_room(growth_of(sequence.tokens)); ++taken) {
    RONDO_CHECK_GE(tokens[taken], 0);
    sequence.leaf = advance(sequence.leaf, tokens[taken]);
    sequence_bytes_ -= sequence.tokens.capacity() * sizeof(Token);
    sequence.tokens.push_back(tokens[taken]);
    sequence_bytes_ += sequence.tokens.capacity() * sizeof(Token);
  }
  ++at(sequence.leaf).num_children;
  num_tokens_ += static_cast<std::int64_t>(taken);
  return taken;
}

// Counts one more `token` after every suffix of the leaf's context. Returns the leaf of the longer context.
NodeId SuffixTree::advance(NodeId leaf, Token token) {
  // Suffixes up to `known` were followed by it before, longer ones were not.
  NodeId known = leaf;
  const Continuation* seen = nullptr;
  while (known != kNone && (seen = continuations_.find(at(known).list, token)) == nullptr)
    known = at(known).parent;
  const std::uint32_t depth = deeper(at(leaf).depth);
  if (seen == nullptr) {
    const NodeId target = new_node(kRoot, depth);
    count_new(leaf, kNone, token, target);
    return target;
  }
  const NodeId old_target = seen->target;
  if (known == leaf) {
    count_known(known, token, old_target, old_target);
    return old_target;
  }
  // So the longest suffix of the longer context that occurred before is this deep.
  const std::uint32_t shared = at(known).depth + 1;
  const NodeId branch = at(old_target).depth == shared ? old_target : split(old_target, shared);
  const NodeId target = shared == depth ? branch : new_node(branch, depth);
  count_new(leaf, known, token, target);
  count_known(known, token, old_target, branch);
  return target;
}

// Adds the continuation to `from` and its ancestors below `to`.
void SuffixTree::count_new(NodeId from, NodeId to, Token token, NodeId target) {
  for (NodeId node = from; node != to; node = at(node).parent) {
    ++at(node).num_continuations;
    continuations_.add(at(node).list, token, target);
  }
}

// Counts the continuation of `from` and its ancestors once more. A split has put `new_target` above
// `old_target`; the nodes that must now lead there are all among these.
void SuffixTree::count_known(NodeId from, Token token, NodeId old_target, NodeId new_target) {
  for (NodeId id = from; id != kNone; id = at(id).parent) {
    Node& node = at(id);
    ++node.num_continuations;
    Continuation& entry = *continuations_.find(node.list, token);
    if (entry.target == old_target) entry.target = new_target;
    continuations_.increment(node.list, entry);
  }
}

// Puts a node of that depth, which occurred where `node` did, between `node` and its parent.
NodeId SuffixTree::split(NodeId node, std::uint32_t depth) {
  const NodeId parent = at(node).parent;
  RONDO_CHECK_LT(at(parent).depth, depth);
  const NodeId middle = new_node(parent, depth);
  remove_child(parent, node);
  at(node).parent = middle;
  add_child(middle, node);
  at(middle).num_continuations = at(node).num_continuations;
  at(middle).list = continuations_.clone(at(node).list);
  return middle;
}

bool SuffixTree::remove(RequestId request) {
  const auto it = requests_.find(request);
  if (it == requests_.end()) return false;
  const std::vector<Token>& tokens = it->second.tokens;
  // `before`: the deepest node left that is a suffix of the context before.
  NodeId leaf = kStart;
  NodeId before = kNone;
  Token token_before = 0;
  for (const Token token : tokens) {
    const NodeId next = uncount(leaf, token);
    before = prune(leaf, before, token_before);
    token_before = token;
    leaf = next;
  }
  --at(leaf).num_children;
  prune(leaf, before, token_before);
  num_tokens_ -= static_cast<std::int64_t>(tokens.size());
  sequence_bytes_ -= kRequestBytes + tokens.capacity() * sizeof(Token);
  requests_.erase(it);
  return true;
}

// Takes one `token` after every suffix of the leaf's context back. Returns the leaf of the longer context.
NodeId SuffixTree::uncount(NodeId leaf, Token token) {
  const NodeId next = continuations_.find(at(leaf).list, token)->target;
  for (NodeId id = leaf; id != kNone; id = at(id).parent) {
    Node& node = at(id);
    --node.num_continuations;
    continuations_.decrement(node.list, *continuations_.find(node.list, token));
  }
  return next;
}

// Removes the leaf if it does not occur any more, and its parent if that has one child left. What led to the
// leaf is gone; what led to the parent are suffixes of `before`. Returns the deepest node left of its path.
NodeId SuffixTree::prune(NodeId leaf, NodeId before, Token token_before) {
  if (leaf == kStart || at(leaf).num_continuations != 0 || at(leaf).num_children != 0) return leaf;
  const NodeId parent = at(leaf).parent;
  remove_child(parent, leaf);
  if (parent == kRoot || at(parent).num_children > 1) {
    free_node(leaf);
    return parent;
  }
  const NodeId only = at(parent).children_xor;
  const NodeId above = at(parent).parent;
  retarget(before, token_before, parent, only);
  remove_child(above, parent);
  add_child(above, only);
  at(only).parent = above;
  free_node(leaf);
  free_node(parent);
  return above;
}

void SuffixTree::retarget(NodeId from, Token token, NodeId old_target, NodeId new_target) {
  for (NodeId id = from; id != kNone; id = at(id).parent) {
    Continuation* entry = continuations_.find(at(id).list, token);
    if (entry != nullptr && entry->target == old_target) entry->target = new_target;
  }
}

std::span<const Token> SuffixTree::tokens(RequestId request) const {
  const auto it = requests_.find(request);
  if (it == requests_.end()) return {};
  return it->second.tokens;
}

std::size_t SuffixTree::memory_bytes() const {
  return sizeof(*this) + nodes_.bytes() + continuations_.bytes() + sequence_bytes_ +
         requests_.bucket_count() * sizeof(void*);
}

Match SuffixTree::shorter(NodeId node) const {
  const NodeId parent = node == kRoot ? kRoot : at(node).parent;
  return {.node = parent, .length = static_cast<std::int32_t>(at(parent).depth)};
}

Match SuffixTree::with_continuation(Match match) const {
  while (match.node != kRoot && at(match.node).num_continuations == 0) match = shorter(match.node);
  return match;
}

Match SuffixTree::match(RequestId request) const {
  const auto it = requests_.find(request);
  if (it == requests_.end()) return {};
  const auto num_tokens = static_cast<std::int64_t>(it->second.tokens.size());
  if (num_tokens >= max_depth_) return with_continuation({it->second.leaf, max_depth_});
  // The leaf says that the sequence starts there, which is no part of a match.
  const Match above = shorter(it->second.leaf);
  if (above.length == num_tokens) return with_continuation(above);
  return with_continuation({it->second.leaf, static_cast<std::int32_t>(num_tokens)});
}

Match SuffixTree::match(std::span<const Token> context) const {
  const std::size_t length = std::min(context.size(), static_cast<std::size_t>(max_depth_));
  Match match;
  for (const Token token : context.last(length)) {
    const Continuation* next = nullptr;
    while ((next = continuations_.find(at(match.node).list, token)) == nullptr && match.node != kRoot)
      match = shorter(match.node);
    if (next != nullptr) match = {.node = next->target, .length = std::min(match.length + 1, max_depth_)};
  }
  return with_continuation(match);
}

}  // namespace rondo::suffix
