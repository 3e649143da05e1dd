#include "suffix/draft.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "base/check.h"

namespace rondo::suffix {
namespace {

// More than rounding can do to a sum of kMaxDraftTokens products.
constexpr double kRounding = 1 + 1e-9;

// A continuation of a node, at a place in the draft.
struct Place {
  NodeId node;
  std::int32_t rank;
  std::int32_t parent;
  double parent_score;
};

// A token that may come next in the draft.
struct Candidate {
  Place place;
  const Continuation* continuation;
  double score;
};

// For a heap with the best on top.
bool is_worse(const Candidate& a, const Candidate& b) {
  return std::tie(a.score, b.place.parent, b.place.rank) < std::tie(b.score, a.place.parent, a.place.rank);
}

// The draft from one suffix of the context: best first.
class Search final {
 public:
  Search(const SuffixTree& tree, const DraftArgs& args) : tree_(tree), args_(args) {}

  // Returns the score, or something not above `to_beat` as soon as the score cannot be.
  double run(NodeId node, double to_beat) {
    num_tokens_ = 0;
    num_candidates_ = 0;
    double score = 0;
    offer({.node = node, .rank = 0, .parent = -1, .parent_score = 1});
    while (num_candidates_ > 0 && num_tokens_ < args_.max_tokens) {
      const double at_most = score + candidates_[0].score * (args_.max_tokens - num_tokens_);
      if (at_most * kRounding < to_beat) break;
      score += take_best();
    }
    return score;
  }

  std::int32_t num_tokens() const { return num_tokens_; }
  void copy_to(const DraftBuffers& out) const {
    const auto count = static_cast<std::size_t>(num_tokens_);
    std::copy_n(tokens_.begin(), count, out.tokens.begin());
    std::copy_n(parents_.begin(), count, out.parents.begin());
    std::copy_n(scores_.begin(), count, out.scores.begin());
  }

 private:
  // Adds the candidate of that place, if there is such a continuation and it is good enough.
  void offer(const Place& place) {
    if (place.rank >= args_.top_k) return;
    const Continuation* const next = tree_.continuation(place.node, place.rank);
    if (next == nullptr) return;
    const double score =
        place.parent_score * (static_cast<double>(next->count) / tree_.num_continuations(place.node));
    if (score < args_.min_prob) return;
    candidates_[static_cast<std::size_t>(num_candidates_++)] = {place, next, score};
    std::push_heap(candidates_.begin(), candidates_.begin() + num_candidates_, is_worse);
  }

  double take_best() {
    std::pop_heap(candidates_.begin(), candidates_.begin() + num_candidates_, is_worse);
    const Candidate best = candidates_[static_cast<std::size_t>(--num_candidates_)];
    const std::int32_t index = num_tokens_++;
    const auto at = static_cast<std::size_t>(index);
    const auto& [node, rank, parent, parent_score] = best.place;
    tokens_[at] = best.continuation->token;
    parents_[at] = parent;
    scores_[at] = static_cast<float>(best.score);
    offer({.node = node, .rank = rank + 1, .parent = parent, .parent_score = parent_score});
    offer({.node = best.continuation->target, .rank = 0, .parent = index, .parent_score = best.score});
    return best.score;
  }

  const SuffixTree& tree_;
  const DraftArgs& args_;
  std::int32_t num_tokens_;
  std::ptrdiff_t num_candidates_;
  std::array<Candidate, kMaxDraftTokens + 1> candidates_;  // a heap; a token taken adds at most one
  std::array<Token, kMaxDraftTokens> tokens_;
  std::array<std::int32_t, kMaxDraftTokens> parents_;
  std::array<float, kMaxDraftTokens> scores_;
};

}  // namespace

Result<void> DraftArgs::validate() const {
  const auto check = [](const char* name, std::int32_t value, std::int32_t low,
                        std::int32_t high) -> Result<void> {
    if (value >= low && value <= high) return {};
    return fail(Code::kInvalidArgument, "{} = {} must lie in {}..{}", name, value, low, high);
  };
  RONDO_TRY(check("max_tokens", max_tokens, 0, kMaxDraftTokens));
  RONDO_TRY(check("min_match", min_match, 1, kLongestContext));
  RONDO_TRY(check("max_match", max_match, min_match, kLongestContext));
  RONDO_TRY(check("top_k", top_k, 1, kMaxRanked));
  if (!(min_prob >= 0 && min_prob <= 1))
    return fail(Code::kInvalidArgument, "min_prob = {} must lie in 0..1", min_prob);
  return {};
}

Draft draft(const SuffixTree& tree, Match match, const DraftArgs& args, const DraftBuffers& out) {
  const auto room = static_cast<std::size_t>(args.max_tokens);
  RONDO_CHECK(out.tokens.size() >= room && out.parents.size() >= room && out.scores.size() >= room);
  // All suffixes between a node and the one above it give the same draft, so the longest stands for them.
  Match above = tree.shorter(match.node);
  while (above.length >= args.max_match) {
    match = above;
    above = tree.shorter(match.node);
  }
  match.length = std::min(match.length, args.max_match);
  Search search(tree, args);
  Draft best;
  // A draft that is sure of all its tokens cannot be beaten.
  while (match.length >= args.min_match && best.score < args.max_tokens) {
    const double score = search.run(match.node, best.score);
    if (score > best.score) {
      best = {.num_tokens = search.num_tokens(), .match_length = match.length, .score = score};
      search.copy_to(out);
    }
    match = tree.shorter(match.node);
  }
  return best;
}

}  // namespace rondo::suffix
