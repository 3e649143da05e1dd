// Drafts: the tokens that a tree thinks come next, as a path or as a tree of alternatives.
#pragma once

#include <cstdint>
#include <span>

#include "base/id.h"
#include "base/status.h"
#include "suffix/suffix_tree.h"

namespace rondo::suffix {

/// Room for the longest draft.
inline constexpr std::int32_t kMaxDraftTokens = 64;

struct DraftArgs {
  std::int32_t max_tokens = 8;               // of the draft, 0 to kMaxDraftTokens
  std::int32_t min_match = 1;                // shortest suffix of the context to continue, at least 1
  std::int32_t max_match = kLongestContext;  // longest
  double min_prob = 0.1;                     // tokens with a smaller score are left out
  std::int32_t top_k = 1;                    // alternatives per token, 1 (a path) to kMaxRanked

  Result<void> validate() const;
};

/// Where a draft is written, in the order in which it was chosen. Each with room for max_tokens.
struct DraftBuffers {
  std::span<Token> tokens;
  std::span<std::int32_t>
      parents;              // index of the token before it, which comes earlier; -1: the context's end
  std::span<float> scores;  // estimated probability that the token and all before it are accepted
};

struct Draft {
  std::int32_t num_tokens = 0;
  std::int32_t match_length = 0;  // tokens of context that the draft continues
  double score = 0;               // estimated number of accepted tokens: the sum of the scores

  bool operator==(const Draft&) const = default;
};

/// Writes the best draft after the matched context.
///
/// A token's score is the product of conditional frequencies on its way: of those times that the (up to
/// max_depth) tokens before it were followed by any token, the share in which this one followed. From one
/// suffix of the context, the draft takes the highest scores first, at most top_k alternatives for a token;
/// so a path with top_k = 1. Of the drafts from all allowed suffixes of the context, the one with the highest
/// score is taken; ties go to the longer suffix, the earlier token of the draft, the lower token id.
///
/// Does not allocate or change the tree. `args` are valid. A suffix is followed only while it may still win,
/// so usually one is; each costs one step per token.
Draft draft(const SuffixTree& tree, Match match, const DraftArgs& args, const DraftBuffers& out);

}  // namespace rondo::suffix
