// Scheduler: what happens, applied to the state. Planning is in scheduler.cc.
#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "base/check.h"
#include "rollout/scheduler.h"

namespace rondo::rollout {
namespace {

constexpr double kLeastShare = 1e-30;

}  // namespace

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
  count_running();
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
  ledger_.chunk_ended(slot);
  ledger_.park(slot, computed, private_blocks(request, computed), request.priority);
  if (learns_lengths()) revise_forecast(request.group);
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
  ledger_.chunk_ended(slot);
  ledger_.release(slot);
  const GroupSlot group_slot = request.group;
  Group& group = table_[group_slot];
  ++group.num_finished;
  group.longest_finished = std::max(group.longest_finished, total_tokens);
  if (group.num_finished < group.num_samples) {
    learns_lengths() ? revise_forecast(group_slot) : reprioritize(group_slot);
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

// In powers of two, so that it changes a few times in all. True: it did.
bool Scheduler::share_misses(std::int64_t num_running) {
  const auto rounded = static_cast<double>(std::bit_ceil(static_cast<std::uint64_t>(num_running)));
  const double share = std::clamp(config_.length_misses / rounded, kLeastShare, 0.5);
  return std::exchange(rank_context_.upper_share, share) != share;
}

// How many run at a time shows once each could have had a turn: until then, all count as running. Ranking all
// again costs as much as all have assignments, so it is done no more often.
void Scheduler::count_running() {
  if (!learns_lengths() || ++since_count_ < std::int64_t{num_in_flight_} + queue_.size()) return;
  since_count_ = 0;
  has_counted_running_ = true;
  if (share_misses(num_in_flight_)) revise_forecasts();
}

void Scheduler::revise_forecasts() {
  for (const auto& [id, slot] : table_.groups()) set_forecast(slot, forecast_of(slot));
}

void Scheduler::revise_forecast(GroupSlot slot) {
  const LengthForecast forecast = forecast_of(slot);
  if (forecast != table_[slot].forecast) set_forecast(slot, forecast);
}

void Scheduler::set_forecast(GroupSlot slot, const LengthForecast& forecast) {
  Group& group = table_[slot];
  group.forecast = forecast;
  group.upper_tokens = upper_length(forecast, rank_context_.upper_share, 0);
  reprioritize(slot);
}

LengthForecast Scheduler::forecast_of(GroupSlot slot) const {
  std::vector<std::int32_t> finished = table_[slot].past_lengths;
  std::vector<std::int32_t> unfinished;
  for (const RequestSlot member : table_.members(slot)) {
    const Request& request = table_[member];
    (request.state == RequestState::kFinished ? finished : unfinished).push_back(request.generated);
  }
  return forecast(prior_, finished, unfinished);
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
  num_requests_ = queue_.size();
  since_count_ = 0;
  has_counted_running_ = false;
  share_misses(num_requests_);
  if (learns_lengths()) revise_forecasts();
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
    const LengthForecast forecast = forecast_of(slot);
    RONDO_CHECK(table_[slot].forecast == forecast);
    RONDO_CHECK_EQ(table_[slot].upper_tokens, upper_length(forecast, rank_context_.upper_share, 0));
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
