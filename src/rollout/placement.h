// Placement: on which instance a chunk runs, and where its KV comes from.
#pragma once

#include <cstdint>
#include <optional>

#include "rollout/kv_ledger.h"
#include "rollout/request.h"

namespace rondo::rollout {

/// How the KV that a chunk starts from gets to its instance.
enum class KvSource {
  kResident,  // all of it is there, or nothing has been computed anywhere
  kMove,      // what is missing is moved from Placement::from
  kRecompute  // what is missing is little, or lost, and computed again
};

/// What is to be placed.
struct PlacementNeed {
  RequestSlot request;
  GroupSlot group;
  std::int32_t prompt_tokens = 0;
  std::int32_t known_tokens = 0;    // prompt and response so far
  std::int64_t private_blocks = 0;  // to reserve, beside the prompt's full blocks
};

struct PlacementRules {
  std::int32_t max_spread = 0;      // of requests in flight, within which cached KV decides
  std::int32_t move_threshold = 0;  // more missing tokens than this are worth a move
};

struct Placement {
  InstanceId instance;
  KvSource source = KvSource::kResident;
  KvPlace from = {};                   // of a move
  std::int32_t cached_tokens = 0;      // positions that need not be computed, once moved
  std::int32_t moved_tokens = 0;       // of these, how many are moved
  std::int32_t recomputed_tokens = 0;  // positions computed before and now again
  bool operator==(const Placement&) const = default;
};

/// The instance with the longest cached prefix of the request, if it has room, no instance runs more than
/// max_spread requests more than another, nor a quarter of its own more, and its prefix is longer by more
/// than move_threshold tokens (but at least a block and at most 512) than that of the least loaded instance
/// with room, which is taken otherwise; the lowest id among equals. nullopt if there is no room. (Seer, arXiv
/// 2511.14617 v3 and OSDI 2026, global KV pool; the last two conditions are ours: where few requests run, one
/// more already shows in the time of a step, and a prefix that costs less to compute than to move is no
/// reason to prefer an instance.) O(log n + instances that have the prompt).
std::optional<InstanceId> choose_instance(const KvLedger& ledger, const PlacementNeed& need,
                                          const PlacementRules& rules);

/// How the request's KV gets to `instance`. A prompt is moved from where it is known to be computed, else
/// from the host; on `instance` itself one that is under way counts as cached, because the engine lets
/// siblings wait for it.
Placement plan_source(const KvLedger& ledger, const PlacementNeed& need, const PlacementRules& rules,
                      InstanceId instance);

}  // namespace rondo::rollout
