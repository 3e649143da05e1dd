#include "sim/trace_gain.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "suffix/draft.h"
#include "suffix/suffix_tree.h"

namespace rondo::sim {
namespace {

constexpr std::size_t kMaxGroups = 16;
constexpr std::size_t kMaxTokens = 4096;  // of a response
constexpr std::int32_t kMaxDrafts = 16;   // per step

/// How often the draft token at each position was asked for, with those before it accepted, and was right.
struct Counts {
  std::vector<double> asked;
  std::vector<double> accepted;

  explicit Counts(std::int32_t positions)
      : asked(static_cast<std::size_t>(positions)), accepted(static_cast<std::size_t>(positions)) {}
  // Positions that no draft reached tell nothing good.
  std::vector<double> conditional() const {
    std::vector<double> result;
    for (std::size_t k = 0; k < asked.size(); ++k)
      result.push_back(asked[k] > 0.0 ? accepted[k] / asked[k] : 0.0);
    return result;
  }
};

using Responses = std::span<const std::vector<Token>>;

std::span<const Token> cut(const std::vector<Token>& tokens) {
  return std::span(tokens).first(std::min<std::size_t>(tokens.size(), kMaxTokens));
}

// One step: drafts behind `done` tokens of the response. Returns the tokens of the step, the sampled one
// included. A position without a draft counts as asked for and refused: the planner pays for it.
std::size_t step(const suffix::SuffixTree& tree, RequestId own, std::span<const Token> rest, Counts& counts) {
  std::array<Token, suffix::kMaxDraftTokens> tokens{};
  std::array<std::int32_t, suffix::kMaxDraftTokens> parents{};
  std::array<float, suffix::kMaxDraftTokens> scores{};
  const suffix::DraftArgs args{.max_tokens = kMaxDrafts};
  const auto draft = suffix::draft(tree, tree.match(own), args, {tokens, parents, scores});
  for (std::size_t k = 0; k + 1 < rest.size() && k < static_cast<std::size_t>(kMaxDrafts); ++k) {
    counts.asked[k] += 1.0;
    if (k >= static_cast<std::size_t>(draft.num_tokens) || tokens[k] != rest[k]) return k + 1;
    counts.accepted[k] += 1.0;
  }
  return std::min(rest.size(), static_cast<std::size_t>(kMaxDrafts) + 1);
}

// Decodes the last response of the group with `references` others in the tree.
void replay(Responses group, std::size_t references, Counts& counts) {
  suffix::SuffixTree tree(suffix::SuffixTree::Config{});
  for (std::size_t i = 0; i < references; ++i) {
    tree.append(RequestId(static_cast<std::int64_t>(i)), cut(group[i]));
  }
  const RequestId own(static_cast<std::int64_t>(group.size()));
  const std::span<const Token> response = cut(group.back());
  for (std::size_t done = 0; done < response.size();) {
    const std::size_t tokens = step(tree, own, response.subspan(done), counts);
    tree.append(own, response.subspan(done, tokens));
    done += tokens;
  }
}

}  // namespace

Result<DraftGain> measure_gain(const Trace& trace) {
  if (trace.tokens.empty()) {
    return fail(Code::kInvalidArgument,
                "trace.file has no tokens to draft from; set trace.measure_drafts = false for the table of "
                "speculation.gain");
  }
  const auto size = trace.groups.front().samples.size();
  const auto groups = std::min<std::size_t>(trace.groups.size(), kMaxGroups);
  std::array<std::vector<double>, kNumSiblingSteps> rows;
  for (std::size_t s = 0; s < kNumSiblingSteps; ++s) {
    const auto references = static_cast<std::size_t>(kSiblingSteps[s]);
    if (references >= size) {
      rows[s] = rows[s - 1];
      continue;
    }
    Counts counts(kMaxDrafts);
    for (std::size_t g = 0; g < groups; ++g) {
      replay(Responses(trace.tokens).subspan(g * size, size), references, counts);
    }
    rows[s] = counts.conditional();
  }
  return DraftGain(std::move(rows));
}

}  // namespace rondo::sim
