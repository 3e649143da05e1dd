#include "rollout/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/block_pool.h"

namespace rondo::rollout {

std::string_view idle_name(Idle idle) {
  switch (idle) {
    case Idle::kNothingWaiting:
      return "nothing waiting";
    case Idle::kNoRoom:
      return "no room";
    case Idle::kNoInstance:
      return "no instance";
    case Idle::kNeverFits:
      return "never fits";
    case Idle::kGoalReached:
      return "goal reached";
  }
  RONDO_CHECK(false);
}

// Reacting late to a filling pool costs more than a boundary does, hence at most 2048; below a block the
// bookkeeping would not notice the difference.
std::int32_t chunk_length(std::int32_t configured, std::int32_t max_new_tokens) {
  constexpr std::int32_t kLongest = 2048;
  if (configured > 0) return configured;
  const auto sixteenth = static_cast<std::int32_t>(kv::blocks_for(max_new_tokens / 16) * kv::kBlockTokens);
  return std::clamp(sixteenth, kv::kBlockTokens, kLongest);
}

Result<std::unique_ptr<Scheduler>> Scheduler::create(const Config& config, const Limits& limits,
                                                     const LengthPrior& prior) {
  if (limits.host_blocks < 0 || limits.disk_blocks < 0 || limits.draft_room_tokens < 0) {
    return fail(Code::kInvalidArgument,
                "host blocks {}, disk blocks {} and draft room {} must not be negative; use 0 for none",
                limits.host_blocks, limits.disk_blocks, limits.draft_room_tokens);
  }
  return std::unique_ptr<Scheduler>(new Scheduler(config, limits, prior));
}

Scheduler::Scheduler(const Config& config, const Limits& limits, const LengthPrior& prior)
    : config_(config),
      limits_(limits),
      rules_(&rules_of(config.policy)),
      placement_rules_{.max_spread = config.max_spread, .move_threshold = config.move_threshold},
      ledger_({.host_blocks = limits.host_blocks,
               .disk_blocks = limits.disk_blocks,
               .min_kept_tokens = config.move_threshold,
               .bounds_running = reserves()}),
      prior_(prior) {}

Result<void> Scheduler::add_instance(const InstanceSpec& spec) {
  constexpr std::int32_t kMaxInstances = 1 << 16;
  if (spec.id.value() < 0 || spec.id.value() >= kMaxInstances || ledger_.has_instance(spec.id)) {
    return fail(Code::kInvalidArgument, "instance id {} is taken or not within 0 to {}", spec.id,
                kMaxInstances - 1);
  }
  if (spec.num_blocks < 1 || spec.max_running < 1) {
    return fail(Code::kInvalidArgument,
                "instance {} has {} KV blocks and {} places; it needs at least one of each", spec.id,
                spec.num_blocks, spec.max_running);
  }
  ledger_.add_instance(spec);
  ++version_;
  return {};
}

std::vector<RequestId> Scheduler::instance_failed(InstanceId id) {
  ++version_;
  std::vector<RequestSlot> slots = ledger_.remove_instance(id);
  std::ranges::sort(slots);  // the order of return is part of the state
  std::vector<RequestId> ids;
  for (const RequestSlot slot : slots) {
    --num_in_flight_;
    table_[table_[slot].group].instance = InstanceId();
    enqueue(slot);
    ids.push_back(table_[slot].id);
  }
  return ids;
}

// Blocks beside the group's full prompt blocks, for so many positions.
std::int64_t Scheduler::private_blocks(const Request& request, std::int64_t positions) const {
  return kv::blocks_for(positions) - ledger_.prompt_blocks(request.group);
}

Result<void> Scheduler::check_group(const GroupSpec& spec) const {
  for (const SampleSpec& sample : spec.samples) {
    if (rules_->needs_true_lengths && sample.true_tokens == 0) {
      return fail(
          Code::kInvalidArgument,
          "request {}: the policy needs the true length of every response, known only when an earlier "
          "run is replayed; give it, or choose another policy",
          sample.id);
    }
    const std::int64_t positions =
        std::int64_t{spec.prompt_tokens} + sample.max_new_tokens - 1 + limits_.draft_room_tokens;
    if (kv::blocks_for(positions) > ledger_.largest_instance()) {
      return fail(
          Code::kResourceExhausted,
          "request {}: {} prompt tokens and up to {} new ones, with {} for drafts, need {} KV blocks of "
          "{} tokens; the largest instance has {}. Give the KV pool more memory or lower the limit",
          sample.id, spec.prompt_tokens, sample.max_new_tokens, limits_.draft_room_tokens,
          kv::blocks_for(positions), kv::kBlockTokens, ledger_.largest_instance());
    }
  }
  return {};
}

Result<void> Scheduler::add_group(const GroupSpec& spec) {
  RONDO_TRY(check_group(spec));
  RONDO_ASSIGN(const GroupSlot slot, table_.add(spec));
  ++version_;
  ledger_.add_group(slot, spec.prompt_tokens);
  revise_forecast(slot);
  for (const RequestSlot member : table_.members(slot)) {
    ledger_.add_request(member, slot);
    enqueue(member);
  }
  return {};
}

Priority Scheduler::priority_of(const Request& request) const {
  return {.rank = rules_->rank(request, table_[request.group]),
          .generated = request.generated,
          .arrival = request.priority.arrival};
}

void Scheduler::enqueue(RequestSlot slot) {
  Request& request = table_[slot];
  request.state = RequestState::kWaiting;
  request.priority = priority_of(request);
  queue_.push(slot, request.priority);
}

bool Scheduler::overdue_turn() const {
  return rules_->can_starve &&
         stats_.assignments % config_.starvation_period == config_.starvation_period - 1;
}

tl::expected<Assignment, Idle> Scheduler::plan() const {
  if (goal_ > 0 && stats_.finished_groups >= goal_) return tl::unexpected(Idle::kGoalReached);
  if (queue_.empty()) return tl::unexpected(Idle::kNothingWaiting);
  if (ledger_.num_instances() == 0) return tl::unexpected(Idle::kNoInstance);
  const RequestSlot slot = overdue_turn() ? queue_.oldest() : queue_.best();
  return reserves() ? plan_chunk(slot) : plan_whole(slot);
}

Idle Scheduler::no_room() const {
  return num_in_flight_ == 0 ? Idle::kNeverFits : Idle::kNoRoom;
}

Assignment Scheduler::describe(RequestSlot slot, const Placement& placement) const {
  const Request& request = table_[slot];
  return {.request = request.id,
          .group = table_[request.group].id,
          .generated = request.generated,
          .max_tokens = request.max_new_tokens - request.generated,
          .placement = placement,
          .evictions = {},
          .version = version_};
}

tl::expected<Assignment, Idle> Scheduler::plan_chunk(RequestSlot slot) const {
  const Request& request = table_[slot];
  const std::int32_t chunk = std::min(chunk_length(config_.chunk_tokens, request.max_new_tokens),
                                      request.max_new_tokens - request.generated);
  const std::int32_t known = table_[request.group].prompt_tokens + request.generated;
  // The last token of a chunk is sampled, not computed.
  const std::int64_t peak = std::int64_t{known} + chunk - 1 + limits_.draft_room_tokens;
  const PlacementNeed need{.request = slot,
                           .group = request.group,
                           .prompt_tokens = table_[request.group].prompt_tokens,
                           .known_tokens = known,
                           .private_blocks = private_blocks(request, peak)};
  const auto instance = choose_instance(ledger_, need, placement_rules_);
  if (!instance) return tl::unexpected(no_room());
  Assignment assignment = describe(slot, plan_source(ledger_, need, placement_rules_, *instance));
  assignment.max_tokens = chunk;
  assignment.reserved_blocks = need.private_blocks;
  std::int64_t blocks = need.private_blocks;
  const KvLedger::Holding& holding = ledger_.holding(slot);
  if (holding.place == KvPlace{KvTier::kInstance, *instance}) blocks -= holding.blocks;
  if (!ledger_.has_prompt(request.group, *instance)) blocks += ledger_.prompt_blocks(request.group);
  for (const SlotEviction& eviction : ledger_.plan_evictions(*instance, blocks, slot)) {
    const bool is_request = eviction.request != RequestSlot();
    assignment.evictions.push_back({.request = is_request ? table_[eviction.request].id : RequestId(),
                                    .group = table_[eviction.group].id,
                                    .from = eviction.from,
                                    .to = eviction.to});
  }
  return assignment;
}

tl::expected<Assignment, Idle> Scheduler::plan_whole(RequestSlot slot) const {
  const auto instance = instance_for_group(table_.group_of(slot));
  if (!instance) return tl::unexpected(no_room());
  Assignment assignment = describe(slot, {.instance = *instance});
  if (rules_->dispatch == Dispatch::kGroupsByLength) assignment.reserved_blocks = true_blocks(table_[slot]);
  return assignment;
}

std::int64_t Scheduler::true_blocks(const Request& request) const {
  return private_blocks(request, std::int64_t{table_[request.group].prompt_tokens} + request.true_tokens - 1);
}

std::optional<InstanceId> Scheduler::instance_for_group(const Group& group) const {
  if (ledger_.has_instance(group.instance)) return group.instance;
  if (rules_->dispatch == Dispatch::kGroupsInTurn) return ledger_.next_instance(last_in_turn_);
  const GroupSlot slot = table_[group.first].group;
  std::int64_t blocks = ledger_.prompt_blocks(slot);
  for (const RequestSlot member : table_.members(slot)) {
    if (table_[member].state == RequestState::kWaiting) blocks += true_blocks(table_[member]);
  }
  // A group beyond any instance gets one to itself, and the engine makes do.
  return ledger_.loads().least_loaded(std::min(blocks, ledger_.largest_instance()));
}

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
  ledger_.park(slot, computed, private_blocks(request, computed), request.priority);
  if (rules_->learns_lengths && request.generated > table_[request.group].revise_above) {
    revise_forecast(request.group);
    reprioritize(request.group);
  }
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
  ledger_.release(slot);
  const GroupSlot group_slot = request.group;
  Group& group = table_[group_slot];
  ++group.num_finished;
  group.longest_finished = std::max(group.longest_finished, total_tokens);
  if (group.num_finished < group.num_samples) {
    revise_forecast(group_slot);
    reprioritize(group_slot);
    return;
  }
  ++stats_.finished_groups;
  finished_lengths_.begin_group();
  for (const RequestSlot member : table_.members(group_slot)) {
    finished_lengths_.add(table_[member].generated, table_[member].max_new_tokens);
  }
  remove_group(group_slot);
}

void Scheduler::remove_group(GroupSlot slot) {
  ledger_.remove_group(slot);
  table_.remove(slot);
}

void Scheduler::revise_forecast(GroupSlot slot) {
  if (!rules_->learns_lengths || prior_.weight == 0.0) return;
  std::vector<std::int32_t> finished;
  std::vector<std::int32_t> unfinished;
  for (const RequestSlot member : table_.members(slot)) {
    const Request& request = table_[member];
    (request.state == RequestState::kFinished ? finished : unfinished).push_back(request.generated);
  }
  const GroupForecast result = forecast(prior_, config_.length_quantile, finished, unfinished);
  table_[slot].upper_tokens = result.upper_tokens;
  table_[slot].revise_above = result.revise_above;
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

void Scheduler::kv_lost(RequestId id) {
  const RequestSlot slot = slot_of(id);
  if (table_[slot].state != RequestState::kWaiting) return;  // it is being used, or lost, where it runs
  ++version_;
  ledger_.release(slot);
}

void Scheduler::new_policy_version() {
  RONDO_CHECK_EQ(num_in_flight_, 0);
  ++version_;
  ledger_.drop_all();
  prior_ = learn(prior_, finished_lengths_);
  finished_lengths_ = {};
  for (const auto& [id, slot] : table_.groups()) {
    revise_forecast(slot);
    reprioritize(slot);
  }
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

std::vector<RequestId> Scheduler::upcoming(std::int32_t count) const {
  std::vector<RequestId> ids;
  for (const RequestSlot slot : queue_.first(count)) ids.push_back(table_[slot].id);
  return ids;
}

KvPlace Scheduler::kv_place(RequestId request) const {
  return ledger_.holding(slot_of(request)).place;
}

void Scheduler::check_invariants() const {
  table_.check_invariants();
  queue_.check_invariants();
  ledger_.check_invariants(reserves());
  check_requests();
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
