#include "rollout/placement.h"

#include <algorithm>

#include "kv/block_pool.h"

namespace rondo::rollout {
namespace {

// Positions of the request that have their KV on the instance.
std::int32_t cached_on(const KvLedger& ledger, const PlacementNeed& need, InstanceId instance) {
  const KvPlace& place = ledger.holding(need.request).place;
  if (place == KvPlace{KvTier::kInstance, instance}) return ledger.holding(need.request).tokens;
  return ledger.has_prompt(need.group, instance) ? need.prompt_tokens - 1 : 0;
}

bool has_room(const KvLedger& ledger, const PlacementNeed& need, InstanceId instance) {
  const bool pinned = ledger.prompt_is_pinned(need.group, instance);
  const std::int64_t prompt = pinned ? 0 : ledger.prompt_blocks(need.group);
  return ledger.room(instance) >= need.private_blocks + prompt;
}

// Where most of the request is cached, among instances with room; the least loaded one of equals.
std::optional<InstanceId> best_cached(const KvLedger& ledger, const PlacementNeed& need) {
  const KvPlace& place = ledger.holding(need.request).place;
  if (place.tier == KvTier::kInstance && has_room(ledger, need, place.instance)) return place.instance;
  std::optional<InstanceId> best;
  ledger.for_each_prompt_place(need.group, [&](InstanceId instance, bool /*computed*/) {
    if (!has_room(ledger, need, instance)) return;
    const auto key = [&](InstanceId id) { return std::pair(ledger.load(id), id); };
    if (!best || key(instance) < key(*best)) best = instance;
  });
  return best;
}

// Where KV that `instance` lacks can be moved from: the request's own, else the prompt, where a sibling has
// computed it or in the host.
KvPlace place_to_move_from(const KvLedger& ledger, const PlacementNeed& need) {
  const KvPlace& own = ledger.holding(need.request).place;
  if (own.tier != KvTier::kNone) return own;
  InstanceId lowest;
  ledger.for_each_prompt_place(need.group, [&lowest](InstanceId id, bool computed) {
    if (computed && (lowest == InstanceId() || id < lowest)) lowest = id;
  });
  if (lowest != InstanceId()) return {.tier = KvTier::kInstance, .instance = lowest};
  return {.tier = ledger.prompt_is_stored(need.group) ? KvTier::kHost : KvTier::kNone, .instance = {}};
}

// What moving costs is not what an imbalance costs: a threshold far off must not decide placement alone.
std::int32_t deciding_gain(const PlacementRules& rules) {
  constexpr std::int32_t kMost = 512;
  return std::clamp(rules.move_threshold, kv::kBlockTokens, kMost);
}

// Where few requests run, one more or less already shows in the time of a step.
bool is_balanced(const LoadIndex& loads, const PlacementRules& rules) {
  constexpr std::int64_t kShare = 4;
  const std::int64_t greatest = loads.greatest();
  const std::int64_t spread = greatest - loads.least();
  return spread <= rules.max_spread && spread * kShare <= greatest;
}

}  // namespace

std::optional<InstanceId> choose_instance(const KvLedger& ledger, const PlacementNeed& need,
                                          const PlacementRules& rules) {
  const auto idlest = ledger.loads().least_loaded(need.private_blocks + ledger.prompt_blocks(need.group));
  const auto cached = best_cached(ledger, need);
  if (!idlest || !cached) return idlest ? idlest : cached;
  if (ledger.load(*cached) == ledger.load(*idlest)) return cached;
  const std::int32_t gain = cached_on(ledger, need, *cached) - cached_on(ledger, need, *idlest);
  return is_balanced(ledger.loads(), rules) && gain > deciding_gain(rules) ? cached : idlest;
}

Placement plan_source(const KvLedger& ledger, const PlacementNeed& need, const PlacementRules& rules,
                      InstanceId instance) {
  Placement placement{.instance = instance, .cached_tokens = cached_on(ledger, need, instance)};
  const bool started = need.known_tokens > need.prompt_tokens;
  const KvPlace from = place_to_move_from(ledger, need);
  const bool is_own = ledger.holding(need.request).place.tier != KvTier::kNone;
  const std::int32_t elsewhere = is_own                       ? ledger.holding(need.request).tokens
                                 : from.tier != KvTier::kNone ? need.prompt_tokens - 1
                                                              : 0;
  if (elsewhere - placement.cached_tokens > rules.move_threshold) {
    placement.source = KvSource::kMove;
    placement.from = from;
    placement.moved_tokens = elsewhere - placement.cached_tokens;
    placement.cached_tokens = elsewhere;
  }
  const std::int32_t computed_before =
      started ? need.known_tokens - 1 : std::max(elsewhere, placement.cached_tokens);
  placement.recomputed_tokens = computed_before - placement.cached_tokens;
  if (placement.source != KvSource::kMove && placement.recomputed_tokens > 0) {
    placement.source = KvSource::kRecompute;
  }
  return placement;
}

}  // namespace rondo::rollout
