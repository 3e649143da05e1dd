#include "rollout/kv_ledger.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/block_pool.h"
#include "kv/prefix.h"

namespace rondo::rollout {
namespace {

std::int32_t last_place(const std::vector<RequestSlot>& slots) {
  return static_cast<std::int32_t>(slots.size()) - 1;
}

}  // namespace

void KvLedger::add_instance(const InstanceSpec& spec) {
  RONDO_CHECK(!has_instance(spec.id));
  instances_.extend_to(spec.id);
  instances_[spec.id] = {};
  instances_[spec.id].spec = spec;
  instances_[spec.id].settled = ++moment_;  // what it sent in an earlier life, and was not lost
  alive_.insert(spec.id);
  sizes_.insert(spec.num_blocks);
  refresh(spec.id);
}

std::vector<RequestSlot> KvLedger::remove_instance(InstanceId id) {
  RONDO_CHECK(has_instance(id));
  Instance& instance = instances_[id];
  std::vector<RequestSlot> in_flight = instance.in_flight;
  std::vector<RequestSlot> parked;
  for (const auto& entry : instance.parked.entries()) parked.push_back(entry.slot);
  for (const RequestSlot request : in_flight) release(request);
  for (const RequestSlot request : parked) release(request);
  while (!instance.idle.empty()) drop_prompt(instance.idle.begin()->second, id);
  lose_stored(id);
  alive_.erase(id);
  sizes_.erase(sizes_.find(instance.spec.num_blocks));
  loads_.erase(id);
  return in_flight;
}

// What is under way from there to host and disk never arrives.
void KvLedger::lose_stored(InstanceId sender) {
  std::vector<RequestSlot> requests;
  for (const Store* store : {&host_, &disk_}) {
    for (const auto& entry : store->requests.entries()) {
      const Holding& holding = holdings_[entry.slot];
      if (holding.sender == sender && is_under_way(sender, holding.since)) requests.push_back(entry.slot);
    }
  }
  std::vector<GroupSlot> prompts;
  for (const auto& [since, group] : stored_prompts_) {
    if (prompts_[group].sender == sender && is_under_way(sender, since)) prompts.push_back(group);
  }
  for (const RequestSlot request : requests) release(request);
  for (const GroupSlot group : prompts) drop_stored_prompt(group);
}

InstanceId KvLedger::next_instance(InstanceId id) const {
  RONDO_CHECK(!alive_.empty());
  const auto it = alive_.upper_bound(id);
  return it == alive_.end() ? *alive_.begin() : *it;
}

std::int32_t KvLedger::load(InstanceId id) const {
  return static_cast<std::int32_t>(instances_[id].in_flight.size());
}

std::int64_t KvLedger::room(InstanceId id) const {
  const Instance& instance = instances_[id];
  if (limits_.bounds_running && load(id) >= instance.spec.max_running) return -1;
  return instance.spec.num_blocks - instance.reserved - instance.pinned_prompts;
}

std::int64_t KvLedger::free_blocks(InstanceId id) const {
  const Instance& i = instances_[id];
  return i.spec.num_blocks - i.reserved - i.pinned_prompts - i.parked_blocks - i.other_prompts;
}

void KvLedger::refresh(InstanceId id) {
  loads_.set(id, load(id), room(id));
}

void KvLedger::add_group(GroupSlot group, std::int32_t prompt_tokens) {
  const kv::SharedPrefix prefix(prompt_tokens);
  prompts_.extend_to(group);
  prompts_[group] = {.full_blocks = prefix.full_blocks,
                     .idle_blocks = prefix.num_blocks(),
                     .tokens = prefix.num_tokens,
                     .copies = {}};
}

void KvLedger::remove_group(GroupSlot group) {
  while (!prompts_[group].copies.empty()) drop_prompt(group, prompts_[group].copies.back().instance);
  if (prompt_is_stored(group)) drop_stored_prompt(group);
}

void KvLedger::add_request(RequestSlot request, GroupSlot group) {
  holdings_.extend_to(request);
  places_.extend_to(request);
  holdings_[request] = {.place = {}, .group = group};
  ++prompts_[group].unstarted;
}

const KvLedger::PromptCopy* KvLedger::find_copy(GroupSlot group, InstanceId id) const {
  const auto& copies = prompts_[group].copies;
  const auto it = std::ranges::find(copies, id, &PromptCopy::instance);
  return it == copies.end() ? nullptr : &*it;
}

bool KvLedger::prompt_is_pinned(GroupSlot group, InstanceId id) const {
  const PromptCopy* copy = find_copy(group, id);
  return copy != nullptr && copy->in_flight > 0;
}

// Adds or takes off (sign -1) what the copy counts for on its instance.
void KvLedger::count_prompt(const Prompt& prompt, const PromptCopy& copy, std::int64_t sign) {
  Instance& instance = instances_[copy.instance];
  if (copy.in_flight > 0) {
    instance.pinned_prompts += sign * prompt.full_blocks;
  } else {
    instance.other_prompts += sign * (copy.idle() ? prompt.idle_blocks : prompt.full_blocks);
  }
}

// A copy appears with its first sample; without samples it stays, idle.
void KvLedger::recount_prompt(GroupSlot group, InstanceId id, std::int32_t in_flight, std::int32_t parked) {
  Prompt& prompt = prompts_[group];
  auto it = std::ranges::find(prompt.copies, id, &PromptCopy::instance);
  if (it == prompt.copies.end()) {
    it = prompt.copies.insert(it, {.instance = id});
  } else {
    count_prompt(prompt, *it, -1);
    if (it->idle()) instances_[id].idle.erase(it->idle_since);
  }
  it->in_flight += in_flight;
  it->parked += parked;
  count_prompt(prompt, *it, 1);
  if (it->idle()) {
    it->idle_since = ++moment_;
    instances_[id].idle.emplace(it->idle_since, group);
  }
}

void KvLedger::drop_prompt(GroupSlot group, InstanceId id) {
  Prompt& prompt = prompts_[group];
  const auto it = std::ranges::find(prompt.copies, id, &PromptCopy::instance);
  RONDO_CHECK(it != prompt.copies.end() && it->idle());
  count_prompt(prompt, *it, -1);
  instances_[id].idle.erase(it->idle_since);
  prompt.copies.erase(it);
}

void KvLedger::store_prompt(GroupSlot group, InstanceId sender) {
  Prompt& prompt = prompts_[group];
  RONDO_CHECK(!prompt.stored_since);
  prompt.stored_since = ++moment_;
  prompt.sender = sender;
  stored_prompts_.emplace(*prompt.stored_since, group);
  host_.used += prompt.idle_blocks;
}

void KvLedger::drop_stored_prompt(GroupSlot group) {
  Prompt& prompt = prompts_[group];
  RONDO_CHECK(prompt.stored_since);
  stored_prompts_.erase(*prompt.stored_since);
  prompt.stored_since.reset();
  host_.used -= prompt.idle_blocks;
}

void KvLedger::evict(const SlotEviction& eviction) {
  if (eviction.request == RequestSlot()) {
    if (eviction.from.tier == KvTier::kHost) return drop_stored_prompt(eviction.group);
    drop_prompt(eviction.group, eviction.from.instance);
    if (eviction.to.tier == KvTier::kHost) store_prompt(eviction.group, eviction.from.instance);
    return;
  }
  Holding& holding = holdings_[eviction.request];
  RONDO_CHECK(holding.place == eviction.from && !holding.in_flight);
  const auto& heap = holding.place.tier == KvTier::kInstance ? instances_[holding.place.instance].parked
                                                             : store(holding.place.tier).requests;
  const Priority priority = heap.entries()[static_cast<std::size_t>(places_[eviction.request])].priority;
  if (eviction.from.tier == KvTier::kInstance) {
    holding.sender = eviction.from.instance;
    holding.since = ++moment_;
  }
  release(eviction.request);
  if (eviction.to.tier != KvTier::kNone) store_in(eviction.request, eviction.to, priority);
}

void KvLedger::store_in(RequestSlot request, const KvPlace& place, const Priority& priority) {
  Holding& holding = holdings_[request];
  Store& to = store(place.tier);
  holding.place = place;
  holding.blocks = kv::blocks_for(holding.tokens);
  to.used += holding.blocks;
  to.requests.push(places_, request, priority);
}

void KvLedger::count_start(RequestSlot request) {
  Holding& holding = holdings_[request];
  if (std::exchange(holding.has_run, true)) return;
  Prompt& prompt = prompts_[holding.group];
  if (--prompt.unstarted == 0 && prompt.stored_since) drop_stored_prompt(holding.group);
}

void KvLedger::start(RequestSlot request, InstanceId id, std::int64_t private_blocks) {
  RONDO_CHECK(has_instance(id) && !holdings_[request].in_flight);
  Holding& holding = holdings_[request];
  const bool was_here = holding.place == KvPlace{KvTier::kInstance, id};
  take_out(request);
  if (holding.place.tier == KvTier::kInstance && !was_here) {
    recount_prompt(holding.group, holding.place.instance, 0, -1);
  }
  count_start(request);
  Instance& instance = instances_[id];
  holding.place = {.tier = KvTier::kInstance, .instance = id};
  holding.in_flight = true;
  holding.blocks = private_blocks;
  holding.since = ++moment_;
  instance.in_flight.push_back(request);
  places_[request] = last_place(instance.in_flight);
  instance.reserved += private_blocks;
  recount_prompt(holding.group, id, 1, was_here ? -1 : 0);
  refresh(id);
}

void KvLedger::chunk_ended(RequestSlot request) {
  const Holding& holding = holdings_[request];
  RONDO_CHECK(holding.in_flight);
  auto& copies = prompts_[holding.group].copies;
  const auto copy = std::ranges::find(copies, holding.place.instance, &PromptCopy::instance);
  RONDO_CHECK(copy != copies.end());
  copy->computed = true;
  std::int64_t& settled = instances_[copy->instance].settled;
  settled = std::max(settled, holding.since);
}

void KvLedger::park(RequestSlot request, std::int32_t tokens, std::int64_t private_blocks,
                    const Priority& priority) {
  Holding& holding = holdings_[request];
  RONDO_CHECK(holding.in_flight);
  RONDO_CHECK_LE(private_blocks, holding.blocks);
  const InstanceId id = holding.place.instance;
  take_out(request);
  holding.in_flight = false;
  holding.blocks = private_blocks;
  holding.tokens = tokens;
  instances_[id].parked_blocks += private_blocks;
  instances_[id].parked.push(places_, request, priority);
  recount_prompt(holding.group, id, -1, 1);
  refresh(id);
}

// Off the lists and sums of where it is; the prompt's count and the holding itself are the caller's.
void KvLedger::take_out(RequestSlot request) {
  const Holding& holding = holdings_[request];
  if (holding.place.tier == KvTier::kInstance) {
    Instance& instance = instances_[holding.place.instance];
    if (holding.in_flight) {
      const RequestSlot last = instance.in_flight.back();
      instance.in_flight[static_cast<std::size_t>(places_[request])] = last;
      places_[last] = places_[request];
      instance.in_flight.pop_back();
      instance.reserved -= holding.blocks;
    } else {
      instance.parked.erase(places_, request);
      instance.parked_blocks -= holding.blocks;
    }
  } else if (holding.place.tier != KvTier::kNone) {
    store(holding.place.tier).requests.erase(places_, request);
    store(holding.place.tier).used -= holding.blocks;
  }
}

void KvLedger::release(RequestSlot request) {
  take_out(request);
  Holding& holding = holdings_[request];
  if (holding.place.tier == KvTier::kInstance) {
    const InstanceId id = holding.place.instance;
    recount_prompt(holding.group, id, holding.in_flight ? -1 : 0, holding.in_flight ? 0 : -1);
    if (holding.in_flight) refresh(id);
  }
  holding.place = {};
  holding.in_flight = false;
  holding.blocks = 0;
}

void KvLedger::reprioritize(RequestSlot request, const Priority& priority) {
  const Holding& holding = holdings_[request];
  RONDO_CHECK(!holding.in_flight);
  if (holding.place.tier == KvTier::kInstance) {
    instances_[holding.place.instance].parked.update(places_, request, priority);
  } else if (holding.place.tier != KvTier::kNone) {
    store(holding.place.tier).requests.update(places_, request, priority);
  }
}

void KvLedger::drop_all() {
  for (const InstanceId id : alive_) {
    Instance& instance = instances_[id];
    RONDO_CHECK(instance.in_flight.empty());
    while (!instance.parked.empty()) release(instance.parked.top().slot);
    while (!instance.idle.empty()) drop_prompt(instance.idle.begin()->second, id);
  }
  for (Store* store : {&host_, &disk_}) {
    while (!store->requests.empty()) release(store->requests.top().slot);
  }
  while (!stored_prompts_.empty()) drop_stored_prompt(stored_prompts_.begin()->second);
}

void KvLedger::check_invariants(bool reserved) const {
  for (const InstanceId id : alive_) check_instance(id, reserved);
  for (const Store* store : {&host_, &disk_}) {
    store->requests.check_invariants(places_);
    std::int64_t used = 0;
    for (const auto& entry : store->requests.entries()) {
      const Holding& holding = holdings_[entry.slot];
      RONDO_CHECK(has_instance(holding.sender) || !is_under_way(holding.sender, holding.since));
      used += holding.blocks;
    }
    if (store == &host_) {
      for (const auto& [since, group] : stored_prompts_) used += prompts_[group].idle_blocks;
    }
    RONDO_CHECK_EQ(store->used, used);
    RONDO_CHECK_LE(used, store->limit);
  }
  RONDO_CHECK_EQ(alive_.size(), sizes_.size());
  loads_.check_invariants();
  check_prompts();
}

void KvLedger::check_instance(InstanceId id, bool reserved) const {
  const Instance& instance = instances_[id];
  std::int64_t in_flight = 0;
  for (const RequestSlot request : instance.in_flight) {
    RONDO_CHECK(holdings_[request].in_flight && holdings_[request].place.instance == id);
    RONDO_CHECK(instance.in_flight[static_cast<std::size_t>(places_[request])] == request);
    in_flight += holdings_[request].blocks;
  }
  RONDO_CHECK_EQ(instance.reserved, in_flight);
  std::int64_t parked = 0;
  for (const auto& entry : instance.parked.entries()) {
    RONDO_CHECK(!holdings_[entry.slot].in_flight && holdings_[entry.slot].place.instance == id);
    parked += holdings_[entry.slot].blocks;
  }
  RONDO_CHECK_EQ(instance.parked_blocks, parked);
  instance.parked.check_invariants(places_);
  for (const auto& [since, group] : instance.idle) {
    RONDO_CHECK_EQ(find_copy(group, id)->idle_since, since);
  }
  if (reserved) {
    RONDO_CHECK_GE(free_blocks(id), 0);
    RONDO_CHECK_LE(load(id), instance.spec.max_running);
  }
}

void KvLedger::check_prompts() const {
  struct Sums {
    std::int64_t pinned = 0;
    std::int64_t other = 0;
    std::size_t idle = 0;
  };
  std::map<InstanceId, Sums> sums;
  for (const auto& [since, group] : stored_prompts_) {
    const Prompt& prompt = prompts_[group];
    RONDO_CHECK(prompt.stored_since == since && prompt.unstarted > 0);
    RONDO_CHECK(has_instance(prompt.sender) || !is_under_way(prompt.sender, since));
  }
  std::size_t num_stored = 0;
  for (const Prompt& prompt : prompts_) {
    num_stored += prompt.stored_since.has_value() ? 1 : 0;
    for (const PromptCopy& copy : prompt.copies) {
      RONDO_CHECK(copy.in_flight >= 0 && copy.parked >= 0 && has_instance(copy.instance));
      Sums& sum = sums[copy.instance];
      const std::int64_t blocks = copy.idle() ? prompt.idle_blocks : prompt.full_blocks;
      (copy.in_flight > 0 ? sum.pinned : sum.other) += blocks;
      sum.idle += copy.idle() ? 1 : 0;
    }
  }
  RONDO_CHECK_EQ(stored_prompts_.size(), num_stored);
  for (const InstanceId id : alive_) {
    const Instance& instance = instances_[id];
    RONDO_CHECK_EQ(instance.pinned_prompts, sums[id].pinned);
    RONDO_CHECK_EQ(instance.other_prompts, sums[id].other);
    RONDO_CHECK_EQ(instance.idle.size(), sums[id].idle);
  }
}

}  // namespace rondo::rollout
