// What the ledger plans to move: from an instance to make room, on from the tiers below, and back from disk.
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "kv/block_pool.h"
#include "rollout/kv_ledger.h"

namespace rondo::rollout {

/// Gathers the evictions of one decision. Reads the ledger, changes nothing.
class KvLedger::EvictionPlan final {
 public:
  EvictionPlan(const KvLedger& ledger, InstanceId id, RequestSlot keep)
      : ledger_(ledger), instance_(ledger.instances_[id]), id_(id), keep_(keep) {}

  std::vector<SlotEviction> run(std::int64_t deficit);

 private:
  // KV that leaves one place and has not found another yet.
  struct Leaving {
    Priority priority;
    RequestSlot request;
    KvPlace from;
  };
  using Walk = RequestHeap<WorstFirst>::Walk;

  GroupSlot kept_group() const { return ledger_.holdings_[keep_].group; }
  std::int64_t drop_idle_prompts(std::int64_t deficit);
  std::int64_t send_away(const RequestHeap<WorstFirst>::Entry& entry);
  std::int64_t drop_left_prompt(GroupSlot group);
  void fill(const Store& store, KvTier tier);
  std::int64_t drop_stored_prompts(std::int64_t excess);
  void store_prompts();
  bool deserves_store(GroupSlot group) const;
  Leaving take_worst(Walk& stored, KvTier tier);
  void drop(const Leaving& leaving) { place(leaving, {}); }
  void drop_prompt(GroupSlot group) {
    prompts_.push_back({.request = {}, .group = group, .from = {KvTier::kInstance, id_}, .to = {}});
  }
  void place(const Leaving& leaving, const KvPlace& to);
  std::int64_t blocks(const Leaving& leaving) const {
    return kv::blocks_for(ledger_.holdings_[leaving.request].tokens);
  }

  const KvLedger& ledger_;
  const Instance& instance_;
  InstanceId id_;
  RequestSlot keep_;
  std::vector<Leaving> leaving_;  // last served first
  std::vector<SlotEviction> evictions_;
  std::vector<SlotEviction> prompts_;         // that leave the instance
  std::vector<SlotEviction> stored_prompts_;  // that leave the host
  std::int64_t host_room_ = 0;                // once all requests have found their places
};

std::vector<SlotEviction> KvLedger::EvictionPlan::run(std::int64_t deficit) {
  deficit = drop_idle_prompts(deficit);
  for (Walk parked(instance_.parked); deficit > 0; parked.advance()) {
    RONDO_CHECK(!parked.done());  // room() promised that enough can go
    if (parked.current().slot == keep_) continue;
    deficit -= send_away(parked.current());
  }
  fill(ledger_.host_, KvTier::kHost);
  fill(ledger_.disk_, KvTier::kDisk);
  for (const Leaving& leaving : leaving_) drop(leaving);
  store_prompts();
  // Room is made below before it is used above: drops, then disk, then host; a prompt goes after its samples.
  std::ranges::reverse(evictions_);
  evictions_.insert(evictions_.begin(), stored_prompts_.begin(), stored_prompts_.end());
  evictions_.insert(evictions_.end(), prompts_.begin(), prompts_.end());
  return std::move(evictions_);
}

// What room is left in the host goes to prompts that would have to be computed again.
void KvLedger::EvictionPlan::store_prompts() {
  for (SlotEviction& eviction : prompts_) {
    const std::int64_t blocks = ledger_.prompts_[eviction.group].idle_blocks;
    if (!deserves_store(eviction.group) || blocks > host_room_) continue;
    eviction.to = {.tier = KvTier::kHost, .instance = InstanceId()};
    host_room_ -= blocks;
  }
}

bool KvLedger::EvictionPlan::deserves_store(GroupSlot group) const {
  const Prompt& prompt = ledger_.prompts_[group];
  return prompt.unstarted > 0 && prompt.tokens > ledger_.limits_.min_kept_tokens && !prompt.stored_since &&
         prompt.copies.size() == 1 && prompt.copies.front().computed;
}

// Prompts in the host give way to requests, the oldest first. Returns what is still too much.
std::int64_t KvLedger::EvictionPlan::drop_stored_prompts(std::int64_t excess) {
  for (const auto& [since, group] : ledger_.stored_prompts_) {
    if (excess <= 0) break;
    if (group == kept_group()) continue;
    stored_prompts_.push_back(
        {.request = {}, .group = group, .from = {KvTier::kHost, InstanceId()}, .to = {}});
    excess -= ledger_.prompts_[group].idle_blocks;
  }
  return excess;
}

std::int64_t KvLedger::EvictionPlan::drop_idle_prompts(std::int64_t deficit) {
  for (const auto& [since, group] : instance_.idle) {
    if (deficit <= 0) break;
    if (group == kept_group() || ledger_.prompts_[group].idle_blocks == 0) continue;
    drop_prompt(group);
    deficit -= ledger_.prompts_[group].idle_blocks;
  }
  return deficit;
}

// Returns the blocks that this frees on the instance.
std::int64_t KvLedger::EvictionPlan::send_away(const RequestHeap<WorstFirst>::Entry& entry) {
  const Holding& holding = ledger_.holdings_[entry.slot];
  const Leaving leaving{entry.priority, entry.slot, holding.place};
  if (holding.tokens <= ledger_.limits_.min_kept_tokens) {
    drop(leaving);
  } else {
    leaving_.push_back(leaving);
  }
  return holding.blocks + drop_left_prompt(holding.group);
}

// The prompt goes with the last sample that is there.
std::int64_t KvLedger::EvictionPlan::drop_left_prompt(GroupSlot group) {
  const PromptCopy& copy = *ledger_.find_copy(group, id_);
  const Prompt& prompt = ledger_.prompts_[group];
  if (copy.in_flight > 0 || group == kept_group() || prompt.idle_blocks == 0) return 0;
  const auto leaves = [&](RequestSlot request) { return ledger_.holdings_[request].group == group; };
  const auto num_leaving = std::ranges::count_if(leaving_, leaves, &Leaving::request) +
                           std::ranges::count(evictions_, group, &SlotEviction::group);
  if (num_leaving < copy.parked) return 0;
  drop_prompt(group);
  return prompt.full_blocks;
}

// What leaves goes in; while it is too much, what is served last, new or old, goes on to the next tier.
void KvLedger::EvictionPlan::fill(const Store& store, KvTier tier) {
  std::int64_t used = store.used;
  for (const Leaving& leaving : leaving_) used += blocks(leaving);
  if (tier == KvTier::kHost) used = store.limit + drop_stored_prompts(used - store.limit);
  std::vector<Leaving> onward;
  for (Walk stored(store.requests); used > store.limit;) {
    onward.push_back(take_worst(stored, tier));
    used -= blocks(onward.back());
  }
  for (const Leaving& leaving : leaving_) place(leaving, {.tier = tier, .instance = InstanceId()});
  leaving_ = std::move(onward);
  if (tier == KvTier::kHost) host_room_ = store.limit - used;
}

KvLedger::EvictionPlan::Leaving KvLedger::EvictionPlan::take_worst(Walk& stored, KvTier tier) {
  if (!stored.done() && stored.current().slot == keep_) stored.advance();
  const bool from_leaving =
      !leaving_.empty() && (stored.done() || stored.current().priority < leaving_.front().priority);
  if (from_leaving) {
    const Leaving worst = leaving_.front();
    leaving_.erase(leaving_.begin());
    return worst;
  }
  RONDO_CHECK(!stored.done());  // the store alone, and `keep` alone, is within its limit
  const Leaving worst{stored.current().priority, stored.current().slot, {tier, InstanceId()}};
  stored.advance();
  return worst;
}

void KvLedger::EvictionPlan::place(const Leaving& leaving, const KvPlace& to) {
  const GroupSlot group = ledger_.holdings_[leaving.request].group;
  evictions_.push_back({.request = leaving.request, .group = group, .from = leaving.from, .to = to});
}

std::vector<SlotEviction> KvLedger::plan_evictions(InstanceId id, std::int64_t blocks,
                                                   RequestSlot keep) const {
  std::int64_t deficit = blocks - free_blocks(id);
  const GroupSlot group = holdings_[keep].group;
  const PromptCopy* copy = find_copy(group, id);
  // An idle prompt's started block becomes one of the request's own.
  if (copy != nullptr && copy->idle()) deficit -= prompts_[group].idle_blocks - prompts_[group].full_blocks;
  if (deficit <= 0) return {};
  return EvictionPlan(*this, id, keep).run(deficit);
}

std::vector<SlotEviction> KvLedger::plan_return_to_host(RequestSlot request) const {
  const Holding& holding = holdings_[request];
  RONDO_CHECK(holding.place.tier == KvTier::kDisk);
  const Priority priority = disk_.requests.entries()[static_cast<std::size_t>(places_[request])].priority;
  std::int64_t lacking = holding.blocks - (host_.limit - host_.used);
  std::int64_t disk_room = disk_.limit - disk_.used;
  std::vector<SlotEviction> moves;
  for (const auto& [since, group] : stored_prompts_) {
    if (lacking <= 0) break;
    moves.push_back({.request = {}, .group = group, .from = {KvTier::kHost, InstanceId()}, .to = {}});
    lacking -= prompts_[group].idle_blocks;
  }
  for (RequestHeap<WorstFirst>::Walk later(host_.requests); lacking > 0; later.advance()) {
    if (later.done() || later.current().priority < priority) return {};
    const Holding& other = holdings_[later.current().slot];
    lacking -= other.blocks;
    disk_room -= other.blocks;
    if (disk_room < 0) return {};
    moves.push_back({.request = later.current().slot,
                     .group = other.group,
                     .from = other.place,
                     .to = {.tier = KvTier::kDisk, .instance = {}}});
  }
  moves.push_back({.request = request,
                   .group = holding.group,
                   .from = holding.place,
                   .to = {.tier = KvTier::kHost, .instance = {}}});
  return moves;
}

}  // namespace rondo::rollout
