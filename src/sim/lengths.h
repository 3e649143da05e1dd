// Lengths: a rollout's prompts and the lengths of their responses, drawn from a distribution.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"
#include "rollout/request.h"

namespace rondo::sim {

enum class AtMax {
  kTruncate,  // lengths beyond the maximum do not occur
  kClip       // they end there
};

constexpr auto enum_names(AtMax) {
  using enum AtMax;
  return std::array{std::pair{kTruncate, "truncate"}, std::pair{kClip, "clip"}};
}

/// Log-normal lengths whose logs (as normal quantiles) are correlated within a group.
struct LengthConfig {
  int groups = 64;
  int group_size = 8;
  int prompt_tokens = 300;
  double mean = 1000.0;
  int max = 8192;
  double shape = 1.0;
  double correlation = 0.7;
  AtMax at_max = AtMax::kTruncate;

  template <class V>
  void visit(V& v) {
    v.field("groups", groups, "Prompts of an iteration", {.min = 1, .max = 1 << 24});
    v.field("group_size", group_size, "Responses per prompt", {.min = 1, .max = 4096});
    v.field("prompt_tokens", prompt_tokens, "Tokens of a prompt", {.min = 1, .max = 1 << 20});
    v.field("mean", mean,
            "Mean length of a response in tokens, the limit and rounding to whole tokens included",
            {.min = 1});
    v.field("max", max, "Limit of a response's length", {.min = 1, .max = 1 << 22});
    v.field("shape", shape, "Standard deviation of a log length before it meets the limit",
            {.above = 0, .max = 5});
    v.field("correlation", correlation, "Correlation of log lengths within a group", {.min = 0, .max = 1});
    v.field("at_max", at_max,
            "What becomes of lengths beyond the limit. truncate: none occur; clip: they end there");
  }
  Result<void> validate() const;
};

/// The groups of one iteration with their true lengths, ids 0, 1, … in order. A pure function of both
/// arguments; the config is valid. `num_groups` may differ from config.groups.
std::vector<rollout::GroupSpec> draw_groups(const LengthConfig& config, std::int64_t num_groups,
                                            std::uint64_t seed);

}  // namespace rondo::sim
