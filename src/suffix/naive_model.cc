#include "suffix/naive_model.h"

#include <algorithm>

namespace rondo::suffix {
namespace {

std::span<const Token> last(std::span<const Token> tokens, std::int32_t count) {
  return tokens.last(std::min(tokens.size(), static_cast<std::size_t>(count)));
}

}  // namespace

void NaiveModel::append(RequestId request, std::span<const Token> tokens) {
  auto& sequence = sequences_[request];
  sequence.insert(sequence.end(), tokens.begin(), tokens.end());
}

std::vector<Continuation> NaiveModel::continuations(std::span<const Token> context) const {
  const auto suffix = last(context, max_depth_);
  std::map<Token, std::uint32_t> counts;
  for (const auto& [id, sequence] : sequences_)
    for (std::size_t next = suffix.size(); next < sequence.size(); ++next)
      if (std::ranges::equal(suffix, std::span(sequence).subspan(next - suffix.size(), suffix.size())))
        ++counts[sequence[next]];
  std::vector<Continuation> result;
  result.reserve(counts.size());
  for (const auto& [token, count] : counts) result.push_back({.token = token, .count = count, .target = 0});
  std::ranges::sort(result, ranks_before);
  return result;
}

std::int32_t NaiveModel::match_length(std::span<const Token> context) const {
  auto length = static_cast<std::int32_t>(last(context, max_depth_).size());
  while (length > 0 && continuations(last(context, length)).empty()) --length;
  return length;
}

// All tokens that could be taken are looked at in each round.
Draft NaiveModel::draft_after(std::span<const Token> suffix, const DraftArgs& args,
                              const DraftBuffers& out) const {
  struct Option {
    double score;
    std::int32_t parent;
    Token token;
    std::vector<Token> context;  // with the token
  };
  std::vector<Option> options;
  const auto offer = [&](const std::vector<Token>& context, std::int32_t parent, double parent_score) {
    const auto next = continuations(context);
    double total = 0;
    for (const Continuation& entry : next) total += entry.count;
    for (std::size_t rank = 0; rank < next.size() && rank < static_cast<std::size_t>(args.top_k); ++rank) {
      const double score = parent_score * (next[rank].count / total);
      if (score < args.min_prob) continue;
      auto longer = context;
      longer.push_back(next[rank].token);
      options.push_back({score, parent, next[rank].token, std::move(longer)});
    }
  };
  Draft result;
  offer({suffix.begin(), suffix.end()}, -1, 1.0);
  while (result.num_tokens < args.max_tokens && !options.empty()) {
    // The earliest of the best: options stand in the order of parent and rank.
    const auto best = std::ranges::max_element(options, {}, &Option::score);
    const Option taken = *best;
    options.erase(best);
    const auto at = static_cast<std::size_t>(result.num_tokens);
    out.tokens[at] = taken.token;
    out.parents[at] = taken.parent;
    out.scores[at] = static_cast<float>(taken.score);
    result.score += taken.score;
    offer(taken.context, result.num_tokens++, taken.score);
  }
  return result;
}

Draft NaiveModel::draft(std::span<const Token> context, const DraftArgs& args,
                        const DraftBuffers& out) const {
  std::vector<Token> tokens(static_cast<std::size_t>(args.max_tokens));
  std::vector<std::int32_t> parents(tokens.size());
  std::vector<float> scores(tokens.size());
  Draft best;
  for (auto length = std::min(match_length(context), args.max_match); length >= args.min_match; --length) {
    Draft draft = draft_after(last(context, length), args, {tokens, parents, scores});
    draft.match_length = length;
    if (draft.score <= best.score) continue;
    best = draft;
    std::ranges::copy(tokens, out.tokens.begin());
    std::ranges::copy(parents, out.parents.begin());
    std::ranges::copy(scores, out.scores.begin());
  }
  return best;
}

std::vector<Continuation> without_targets(const SuffixTree& tree, NodeId node) {
  std::vector<Continuation> result;
  for (std::int32_t rank = 0; rank < kMaxRanked; ++rank)
    if (const Continuation* next = tree.continuation(node, rank))
      result.push_back({.token = next->token, .count = next->count, .target = 0});
  return result;
}

}  // namespace rondo::suffix
