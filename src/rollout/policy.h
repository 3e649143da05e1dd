// Schedule policies: the order in which waiting requests are served, and how they are handed out.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "rollout/request_table.h"

namespace rondo::rollout {

enum class Policy {
  kSeer,
  kSeerPlus,
  kFifo,
  kLeastAttained,
  kGroupRoundRobin,
  kStreamOracle,
  kOracleLfs,
  kPartial
};

constexpr auto enum_names(Policy) {
  using enum Policy;
  return std::array{std::pair{kSeer, "seer"},
                    std::pair{kSeerPlus, "seer_plus"},
                    std::pair{kFifo, "fifo"},
                    std::pair{kLeastAttained, "least_attained"},
                    std::pair{kGroupRoundRobin, "group_round_robin"},
                    std::pair{kStreamOracle, "stream_oracle"},
                    std::pair{kOracleLfs, "oracle_lfs"},
                    std::pair{kPartial, "partial"}};
}

/// Who decides where a request runs, and what is reserved for it.
enum class Dispatch {
  kChunks,         // one chunk at a time, its peak reserved: nothing is ever preempted
  kGroupsInTurn,   // whole groups to instances in turn, nothing reserved: engines queue, grow and preempt
  kGroupsByLength  // whole groups where their true lengths fit, nothing else reserved
};

/// What a rank depends on beside the request and its group.
struct RankContext {
  double upper_share = 0.5;  // of responses that may end later than is allowed for
};

/// One policy, as data and one function.
struct PolicyRules {
  Dispatch dispatch = Dispatch::kChunks;
  bool needs_true_lengths = false;   // an oracle: not for training
  bool strictly_synchronous = true;  // every response that was asked for is finished
  bool can_starve = false;           // its order alone may pass a request over for ever
  bool learns_lengths = false;       // ranks by Group::forecast where there is one
  /// The least is served first.
  std::int64_t (*rank)(const Request& request, const Group& group, const RankContext& context) = nullptr;
};

/// A policy by its name, with "+spec" behind it for speculation.
struct PolicyChoice {
  Policy policy = Policy::kSeerPlus;
  bool speculates = false;
};
/// kInvalidArgument with the nearest name if there is no such policy.
Result<PolicyChoice> parse_policy(std::string_view text);

/// The rules of a policy; static data, any thread.
const PolicyRules& rules_of(Policy policy);

}  // namespace rondo::rollout
