// Scheduler: what happens, applied to the state. Planning is in scheduler.cc.
#include <algorithm>
#include <bit>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "rollout/scheduler.h"

namespace rondo::rollout {

void Scheduler::commit(const Assignment& assignment) {
  RONDO_CHECK_EQ(assignment.version, version_);
  ++version_;
  const RequestSlot slot = slot_of(assignment.request);
  Request& request = table_[slot];
  RONDO_CHECK(request.state == RequestState::kWaiting);
  for (const Eviction& eviction : assignment.evictions) apply(eviction);
  const Placement& placement = assignment.placement;
  stats_.overdue += overdue_turn() ? 1 : 0;
  ++stats_.assignments;
  stats_.moves += placement.source == KvSource::kMove ? 1 : 0;
  stats_.moved_tokens += placement.moved_tokens;
  stats_.recomputed_tokens += placement.recomputed_tokens;
  queue_.erase(slot);
  request.state = RequestState::kInFlight;
  request.chunk = assignment.max_tokens;
  ++num_in_flight_;
  ledger_.start(slot, placement.instance, assignment.reserved_blocks);
  Group& group = table_[request.group];
  if (!reserves() && group.instance != placement.instance) {
    group.instance = placement.instance;
    last_in_turn_ = placement.instance;
  }
}

void Scheduler::apply(const Eviction& eviction) {
  const bool is_request = eviction.request != RequestId();
  const auto group = table_.find(eviction.group);
  RONDO_CHECK(group.has_value());
  ledger_.evict({.request = is_request ? slot_of(eviction.request) : RequestSlot(),
                 .group = *group,
                 .from = eviction.from,
                 .to = eviction.to});
  stats_.evicted_requests += is_request && eviction.from.tier == KvTier::kInstance ? 1 : 0;
}

RequestSlot Scheduler::slot_of(RequestId id) const {
  const auto slot = table_.find(id);
  RONDO_CHECK(slot.has_value());
  return *slot;
}

void Scheduler::chunk_done(RequestId id, std::int32_t new_tokens) {
  ++version_;
  const RequestSlot slot = slot_of(id);
  Request& request = table_[slot];
  RONDO_CHECK(request.state == RequestState::kInFlight && new_tokens >= 1 && new_tokens <= request.chunk);
  request.generated += new_tokens;
  RONDO_CHECK_LT(request.generated, request.max_new_tokens);
  --num_in_flight_;
  enqueue(slot);
  const std::int32_t computed = table_[request.group].prompt_tokens + request.generated - 1;
  ledger_.prompt_computed(slot);
  ledger_.park(slot, computed, private_blocks(request, computed), request.priority);
  if (learns_lengths()) revise_upper_length(request.group);
}

void Scheduler::finished(RequestId id, std::int32_t total_tokens) {
  ++version_;
  const RequestSlot slot = slot_of(id);
  Request& request = table_[slot];
  RONDO_CHECK(request.state == RequestState::kInFlight);
  RONDO_CHECK(total_tokens > request.generated && total_tokens - request.generated <= request.chunk);
  request.generated = total_tokens;
  request.state = RequestState::kFinished;
  --num_in_flight_;
  ++stats_.finished_requests;
  ledger_.prompt_computed(slot);
  ledger_.release(slot);
  const GroupSlot group_slot = request.group;
  Group& group = table_[group_slot];
  ++group.num_finished;
  group.longest_finished = std::max(group.longest_finished, total_tokens);
  if (group.num_finished < group.num_samples) {
    learns_lengths() ? revise_upper_length(group_slot) : reprioritize(group_slot);
    return;
  }
  ++stats_.finished_groups;
  if (group.is_learned) {
    std::vector<FinishedLength>& lengths = finished_lengths_[group.id];
    lengths.clear();
    for (const RequestSlot member : table_.members(group_slot)) {
      lengths.push_back({table_[member].generated, table_[member].max_new_tokens});
    }
  }
  remove_group(group_slot);
}

void Scheduler::set_prior(const LengthPrior& prior) {
  RONDO_CHECK_EQ(table_.num_groups(), 0);
  prior_ = prior;
}

void Scheduler::remove_group(GroupSlot slot) {
  ledger_.remove_group(slot);
  table_.remove(slot);
}

bool Scheduler::count_requests(std::int64_t num_requests) {
  num_requests_ = num_requests;
  // In powers of two, so that a step that is filled group by group changes it a few times in all.
  const auto rounded = static_cast<double>(std::bit_ceil(static_cast<std::uint64_t>(num_requests)));
  const double share = std::clamp(config_.length_misses / rounded, std::numeric_limits<double>::min(), 0.5);
  const double z = normal_bound(share);
  return std::exchange(length_bound_, z) != z;
}

void Scheduler::revise_upper_lengths() {
  for (const auto& [id, slot] : table_.groups()) revise_upper_length(slot);
}

void Scheduler::revise_upper_length(GroupSlot slot) {
  const std::int64_t upper = upper_length_of(slot);
  if (std::exchange(table_[slot].upper_tokens, upper) != upper) reprioritize(slot);
}

std::int64_t Scheduler::upper_length_of(GroupSlot slot) const {
  std::vector<std::int32_t> finished = table_[slot].past_lengths;
  std::vector<std::int32_t> unfinished;
  for (const RequestSlot member : table_.members(slot)) {
    const Request& request = table_[member];
    (request.state == RequestState::kFinished ? finished : unfinished).push_back(request.generated);
  }
  return upper_length(prior_, length_bound_, finished, unfinished);
}

void Scheduler::reprioritize(GroupSlot slot) {
  for (const RequestSlot member : table_.members(slot)) {
    Request& request = table_[member];
    if (request.state != RequestState::kWaiting) continue;
    const Priority priority = priority_of(request);
    if (priority == request.priority) continue;
    request.priority = priority;
    queue_.update(member, priority);
    ledger_.reprioritize(member, priority);
  }
}

void Scheduler::new_policy_version() {
  RONDO_CHECK_EQ(num_in_flight_, 0);
  ++version_;
  ledger_.drop_all();
  LengthSample sample;
  for (const auto& [group, lengths] : finished_lengths_) {
    sample.begin_group();
    for (const FinishedLength& length : lengths) sample.add(length.tokens, length.max_new_tokens);
  }
  prior_ = learn(prior_, sample);
  finished_lengths_.clear();
  count_requests(queue_.size());
  if (learns_lengths()) revise_upper_lengths();
}

std::vector<RequestId> Scheduler::abandon() {
  ++version_;
  std::vector<RequestId> ids;
  while (table_.num_groups() > 0) {
    const GroupSlot slot = table_.groups().begin()->second;
    for (const RequestSlot member : table_.members(slot)) {
      const Request& request = table_[member];
      if (request.state == RequestState::kFinished) continue;
      if (request.state == RequestState::kWaiting) queue_.erase(member);
      ledger_.release(member);
      ids.push_back(request.id);
    }
    remove_group(slot);
  }
  num_in_flight_ = 0;
  std::ranges::sort(ids);
  return ids;
}

void Scheduler::commit(const Prefetch& prefetch) {
  RONDO_CHECK_EQ(prefetch.version, version_);
  ++version_;
  ++stats_.prefetched_requests;
  for (const Eviction& move : prefetch.moves) apply(move);
}

bool Scheduler::prompt_is_stored(GroupId group) const {
  const auto slot = table_.find(group);
  RONDO_CHECK(slot.has_value());
  return ledger_.prompt_is_stored(*slot);
}

KvPlace Scheduler::kv_place(RequestId request) const {
  return ledger_.holding(slot_of(request)).place;
}

void Scheduler::check_invariants() const {
  table_.check_invariants();
  queue_.check_invariants();
  ledger_.check_invariants(reserves());
  check_requests();
  if (!learns_lengths()) return;
  for (const auto& [id, slot] : table_.groups()) {
    RONDO_CHECK_EQ(table_[slot].upper_tokens, upper_length_of(slot));
  }
}

void Scheduler::check_requests() const {
  std::int32_t num_waiting = 0;
  std::int32_t num_in_flight = 0;
  for (std::int32_t i = 0; i < table_.num_slots(); ++i) {
    const RequestSlot slot(i);
    const Request& request = table_[slot];
    if (request.state == RequestState::kUnused) continue;
    const KvLedger::Holding& holding = ledger_.holding(slot);
    const bool in_flight = request.state == RequestState::kInFlight;
    RONDO_CHECK_EQ(holding.in_flight, in_flight);
    num_in_flight += in_flight ? 1 : 0;
    num_waiting += request.state == RequestState::kWaiting ? 1 : 0;
    if (request.state == RequestState::kWaiting) RONDO_CHECK(request.priority == priority_of(request));
    if (in_flight || holding.place.tier == KvTier::kNone) continue;
    RONDO_CHECK(request.state == RequestState::kWaiting);
    RONDO_CHECK_EQ(holding.tokens, table_.group_of(slot).prompt_tokens + request.generated - 1);
  }
  RONDO_CHECK_EQ(num_waiting, queue_.size());
  RONDO_CHECK_EQ(num_in_flight, num_in_flight_);
}

}  // namespace rondo::rollout
