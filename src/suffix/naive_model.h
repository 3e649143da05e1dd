// NaiveModel: the same counts and drafts by looking through all sequences, for tests.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "suffix/draft.h"

namespace rondo::suffix {

/// Keeps sequences and answers by scanning them. The definition that SuffixTree and draft() are held to.
class NaiveModel final {
 public:
  explicit NaiveModel(std::int32_t max_depth) : max_depth_(max_depth) {}

  void append(RequestId request, std::span<const Token> tokens);
  void remove(RequestId request) { sequences_.erase(request); }
  const std::map<RequestId, std::vector<Token>>& sequences() const { return sequences_; }

  /// What followed the context (its last max_depth tokens), in rank order; targets are 0.
  std::vector<Continuation> continuations(std::span<const Token> context) const;
  /// Length of the longest suffix, up to max_depth, that has a continuation.
  std::int32_t match_length(std::span<const Token> context) const;
  Draft draft(std::span<const Token> context, const DraftArgs& args, const DraftBuffers& out) const;

 private:
  Draft draft_after(std::span<const Token> suffix, const DraftArgs& args, const DraftBuffers& out) const;

  std::int32_t max_depth_;
  std::map<RequestId, std::vector<Token>> sequences_;
};

/// The ranked continuations of a tree's node in the naive model's terms: targets are 0.
std::vector<Continuation> without_targets(const SuffixTree& tree, NodeId node);

}  // namespace rondo::suffix
