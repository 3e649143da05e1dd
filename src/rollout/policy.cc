#include "rollout/policy.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/text_distance.h"

namespace rondo::rollout {
namespace {

// Ranks of ordinary requests start here, so that every probe comes first.
constexpr std::int64_t kAfterProbes = std::int64_t{1} << 40;

std::int64_t by_arrival(const Request& request, const Group&, const RankContext&) {
  return request.priority.arrival;
}

std::int64_t by_generated(const Request& request, const Group&, const RankContext&) {
  return request.generated;
}

// Probes shortest first, then the others longest first by what their group is known to reach: by
// a finished sibling, else by an earlier epoch's. (Seer, arXiv 2511.14617, Algorithm 2 of v3; without the
// earlier epochs.)
std::int64_t seer(const Request& request, const Group& group, const RankContext&) {
  if (request.is_probe) return request.generated;
  std::int32_t estimate = request.max_new_tokens;
  if (group.longest_past > 0) estimate = std::min(estimate, group.longest_past);
  if (group.num_finished > 0) estimate = group.longest_finished;
  return kAfterProbes - estimate;
}

// Most left to do first, where the end is taken to be late: what hardly any response goes beyond that has
// come as far. Without anything learned: probes, then the least generated.
std::int64_t seer_plus(const Request& request, const Group& group, const RankContext& context) {
  if (!group.forecast.known()) return (request.is_probe ? 0 : kAfterProbes) + request.generated;
  // It grows with what there is, so one beyond the limit need not be computed.
  std::int64_t upper = group.upper_tokens;
  if (upper < request.max_new_tokens) {
    upper = upper_length(group.forecast, context.upper_share, request.generated);
  }
  return request.generated - std::min<std::int64_t>(request.max_new_tokens, upper);
}

std::int64_t longest_remaining(const Request& request, const Group&, const RankContext&) {
  return request.generated - request.true_tokens;
}

std::int64_t longest_group(const Request&, const Group& group, const RankContext&) {
  return -std::int64_t{group.longest_true};
}

constexpr PolicyRules kSeerRules{.can_starve = true, .rank = seer};
constexpr PolicyRules kSeerPlusRules{.can_starve = true, .learns_lengths = true, .rank = seer_plus};
constexpr PolicyRules kFifoRules{.rank = by_arrival};
constexpr PolicyRules kLeastAttainedRules{.can_starve = true, .rank = by_generated};
constexpr PolicyRules kRoundRobinRules{.dispatch = Dispatch::kGroupsInTurn, .rank = by_arrival};
constexpr PolicyRules kStreamOracleRules{
    .dispatch = Dispatch::kGroupsByLength, .needs_true_lengths = true, .rank = longest_group};
constexpr PolicyRules kOracleLfsRules{
    .needs_true_lengths = true, .can_starve = true, .rank = longest_remaining};
constexpr PolicyRules kPartialRules{
    .dispatch = Dispatch::kGroupsInTurn, .strictly_synchronous = false, .rank = by_arrival};

}  // namespace

Result<PolicyChoice> parse_policy(std::string_view text) {
  constexpr std::string_view kSpec = "+spec";
  const bool speculates = text.ends_with(kSpec);
  const std::string_view name = speculates ? text.substr(0, text.size() - kSpec.size()) : text;
  std::vector<std::string> names;
  for (const auto& [value, known] : enum_names(Policy{})) {
    if (name == known) return PolicyChoice{.policy = value, .speculates = speculates};
    names.emplace_back(known);
  }
  return fail(Code::kInvalidArgument, "unknown policy '{}'; the nearest is '{}'", name,
              nearest_name(name, names));
}

const PolicyRules& rules_of(Policy policy) {
  switch (policy) {
    case Policy::kSeer:
      return kSeerRules;
    case Policy::kSeerPlus:
      return kSeerPlusRules;
    case Policy::kFifo:
      return kFifoRules;
    case Policy::kLeastAttained:
      return kLeastAttainedRules;
    case Policy::kGroupRoundRobin:
      return kRoundRobinRules;
    case Policy::kStreamOracle:
      return kStreamOracleRules;
    case Policy::kOracleLfs:
      return kOracleLfsRules;
    case Policy::kPartial:
      return kPartialRules;
  }
  RONDO_CHECK(false);
}

}  // namespace rondo::rollout
