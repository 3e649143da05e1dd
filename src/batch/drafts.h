// Drafts: proposed continuations of decoding sequences, which a step verifies.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/id.h"
#include "batch/sequence.h"

namespace rondo::batch {

/// A chain or a tree of tokens behind the last known one. parents[i] < i is the node before node i, or -1 for
/// the last known token; the better child of a node stands before the others, and children of
/// a node differ.
struct Draft {
  std::span<const Token> tokens;
  std::span<const std::int32_t> parents;
  std::int32_t size() const { return static_cast<std::int32_t>(tokens.size()); }
};

/// Collects the drafts of one step. What is in here changes how many rows a step has and how many tokens it
/// yields, never a token. Keeps its memory between steps; one draft per slot. One owner thread.
class Drafts final {
 public:
  void clear();
  /// Adds a draft for the sequence in `slot`, which must have none yet. Its parents are as in Draft.
  void add(Slot slot, std::span<const Token> tokens, std::span<const std::int32_t> parents);
  /// The same for a chain.
  void add_chain(Slot slot, std::span<const Token> tokens);
  /// The draft of `slot`; empty if there is none. Valid until the next change.
  Draft find(Slot slot) const;
  bool empty() const { return tokens_.empty(); }

 private:
  struct Entry {
    std::int32_t begin = 0;
    std::int32_t size = 0;
  };
  Entry& open(Slot slot, std::size_t size);

  std::vector<Token> tokens_;
  std::vector<std::int32_t> parents_;
  std::vector<Entry> by_slot_;
  std::vector<Slot> used_;
};

}  // namespace rondo::batch
