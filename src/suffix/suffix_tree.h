// SuffixTree: what followed each context in the sequences of one prompt group, with counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "suffix/continuation.h"
#include "suffix/continuation_store.h"
#include "suffix/pool.h"

namespace rondo::suffix {

/// A suffix of some context that occurs in the tree with a continuation: its node and its length in tokens.
/// Length 0 is the root: nothing matches.
struct Match {
  NodeId node = 0;
  std::int32_t length = 0;
  bool operator==(const Match&) const = default;
};

/// The longest context that a tree can be made for.
inline constexpr std::int32_t kLongestContext = 255;

/// Counts, for every context of up to max_depth tokens of a set of sequences, the tokens that followed it.
///
/// It is the suffix tree of the reversed sequences, cut at max_depth, with suffix links (README.md): a node
/// is a set of contexts that occurred at the same places, its ancestors are their suffixes, and a
/// continuation leads to the node of the longer context. Appending a token costs one step per ancestor;
/// following a continuation costs one step.
///
/// Its content, and so every draft, is a function of the appended sequences alone: not of the order in which
/// requests took turns, nor of how tokens were cut into spans, nor of sequences removed before.
///
/// Does not choose drafts (draft.h), know policy versions, or decide what to remove when memory is short. One
/// owner thread; const functions may run on several threads between changes. A Match holds until the next
/// change.
class SuffixTree final {
 public:
  struct Config {
    std::int32_t max_depth = 24;                   // longest context in tokens, 1 to kLongestContext
    std::size_t max_bytes = std::size_t{1} << 28;  // bound on memory_bytes()

    Result<void> validate() const;
  };

  /// An empty tree. The config is valid.
  explicit SuffixTree(const Config& config);
  SuffixTree(const SuffixTree&) = delete;
  SuffixTree& operator=(const SuffixTree&) = delete;

  /// Appends tokens (>= 0) to the sequence of `request`, which starts empty when it is new. Returns how many
  /// were taken: fewer than given when one more might exceed max_bytes. That is data, not an error: what was
  /// taken counts, and the caller may go on after removing another request.
  std::size_t append(RequestId request, std::span<const Token> tokens);
  /// Takes the whole sequence of `request` out; false: unknown. Most memory is kept for later appends; none
  /// is taken.
  bool remove(RequestId request);

  /// The sequence of a request; empty when it is unknown.
  std::span<const Token> tokens(RequestId request) const;
  std::size_t num_requests() const { return requests_.size(); }
  /// Of all sequences together.
  std::int64_t num_tokens() const { return num_tokens_; }
  std::size_t num_nodes() const { return nodes_.num_used(); }
  /// Memory held: nodes, continuations, sequences, free space included.
  std::size_t memory_bytes() const;

  /// The longest suffix of the sequence of `request` (unknown: none) that somewhere was followed by a token:
  /// its own end does not count, its own past does. O(1) for a sequence that has been appended here.
  Match match(RequestId request) const;
  /// The same for any context, of which the last max_depth tokens count. O(max_depth).
  Match match(std::span<const Token> context) const;

  std::int32_t max_depth() const { return max_depth_; }
  /// How often the contexts of the node were followed by any token.
  std::uint32_t num_continuations(NodeId node) const { return nodes_.at(node)->num_continuations; }
  /// The continuation of that rank (more frequent first, ties to the lower token), 0 <= rank < kMaxRanked;
  /// nullptr: there are fewer.
  const Continuation* continuation(NodeId node, std::int32_t rank) const {
    return continuations_.ranked(nodes_.at(node)->list, rank);
  }
  /// The next shorter contexts that occurred at more places: the root has none, and is its own.
  Match shorter(NodeId node) const;

  /// Aborts unless all of the above is consistent. O(memory).
  void check_invariants() const;

 private:
  static constexpr NodeId kRoot = 0;
  static constexpr NodeId kStart = 1;  // the leaf of the empty sequence
  static constexpr NodeId kNone = ~NodeId{0};

  // A node is the longest of its contexts. A leaf has max_depth tokens, or reaches back to the start of its
  // sequence, which counts as a token of its own.
  struct Node {
    NodeId parent = kNone;
    std::uint32_t num_continuations = 0;
    ContinuationList list;
    std::uint32_t num_children : 24 = 0;  // of a leaf: sequences that end there
    std::uint32_t depth : 8 = 0;
    NodeId children_xor = 0;  // of their ids: when one is left, it is this one
  };
  struct Request {
    NodeId leaf = kStart;
    std::vector<Token> tokens;
  };

  Node& at(NodeId node) { return *nodes_.at(node); }
  const Node& at(NodeId node) const { return *nodes_.at(node); }
  // The depth of contexts of that depth when they get one token more.
  std::uint32_t deeper(std::uint32_t depth) const;

  NodeId new_node(NodeId parent, std::uint32_t depth);
  void free_node(NodeId node);
  void add_child(NodeId parent, NodeId child);
  void remove_child(NodeId parent, NodeId child);

  bool has_room(std::size_t sequence_growth) const;
  NodeId advance(NodeId leaf, Token token);
  void count_new(NodeId from, NodeId to, Token token, NodeId target);
  void count_known(NodeId from, Token token, NodeId old_target, NodeId new_target);
  NodeId split(NodeId node, std::uint32_t depth);

  NodeId uncount(NodeId leaf, Token token);
  NodeId prune(NodeId leaf, NodeId before, Token token_before);
  void retarget(NodeId from, Token token, NodeId old_target, NodeId new_target);
  Match with_continuation(Match match) const;

  void check_children(const std::vector<bool>& used) const;
  void check_continuations(const std::vector<bool>& used) const;
  void check_requests(const std::vector<bool>& used) const;

  std::int32_t max_depth_;
  std::size_t max_bytes_;
  Pool<Node> nodes_;
  ContinuationStore continuations_;
  std::unordered_map<RequestId, Request> requests_;
  std::int64_t num_tokens_ = 0;
  std::size_t sequence_bytes_ = 0;  // of the requests
};

}  // namespace rondo::suffix
