#include "rollout/scheduler.h"

#include <algorithm>
#include <cmath>
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

Result<void> Scheduler::Config::validate() const {
  if (chunk_tokens < 0 || max_spread < 0 || move_threshold < kMeasured) {
    return fail(
        Code::kInvalidArgument,
        "chunk_tokens ({}) and max_spread ({}) must not be negative, nor move_threshold ({}) below {}",
        chunk_tokens, max_spread, move_threshold, kMeasured);
  }
  if (starvation_period < 2 || over_issue < 1.0 || length_misses <= 0.0) {
    return fail(
        Code::kInvalidArgument,
        "starvation_period ({}) must be at least 2, over_issue ({}) at least 1, length_misses ({}) more "
        "than 0",
        starvation_period, over_issue, length_misses);
  }
  return {};
}

Result<std::unique_ptr<Scheduler>> Scheduler::create(const Config& config, const Limits& limits,
                                                     const LengthPrior& prior) {
  RONDO_TRY(config.validate());
  if (config.move_threshold < 0) {
    return fail(Code::kInvalidArgument,
                "move_threshold = {} stands for a measurement, and there is no engine to measure; give a "
                "number of tokens (512 suits GPUs)",
                config.move_threshold);
  }
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
  for (const RequestSlot member : table_.members(slot)) {
    ledger_.add_request(member, slot);
    enqueue(member);
  }
  num_requests_ += std::ssize(spec.samples);
  const bool revises_all = !has_counted_running_ && share_misses(num_requests_);
  if (learns_lengths()) revises_all ? revise_forecasts() : revise_forecast(slot);
  return {};
}

std::int64_t Scheduler::groups_to_issue(std::int64_t wanted) const {
  if (rules_->strictly_synchronous) return wanted;
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(wanted) * config_.over_issue));
}

Priority Scheduler::priority_of(const Request& request) const {
  return {.rank = rules_->rank(request, table_[request.group], rank_context_),
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
  assignment.evictions = describe(ledger_.plan_evictions(*instance, blocks, slot));
  return assignment;
}

std::vector<Eviction> Scheduler::describe(std::span<const SlotEviction> evictions) const {
  std::vector<Eviction> result;
  for (const SlotEviction& eviction : evictions) {
    const bool is_request = eviction.request != RequestSlot();
    result.push_back({.request = is_request ? table_[eviction.request].id : RequestId(),
                      .group = table_[eviction.group].id,
                      .from = eviction.from,
                      .to = eviction.to});
  }
  return result;
}

std::optional<Prefetch> Scheduler::plan_prefetch(std::int32_t count) const {
  if (ledger_.blocks_used(KvTier::kDisk) == 0) return std::nullopt;
  for (const RequestSlot slot : queue_.first(count)) {
    if (ledger_.holding(slot).place.tier != KvTier::kDisk) continue;
    const std::vector<SlotEviction> moves = ledger_.plan_return_to_host(slot);
    if (!moves.empty()) return Prefetch{.moves = describe(moves), .version = version_};
  }
  return std::nullopt;
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

}  // namespace rondo::rollout
