#include "batch/roster.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace rondo::batch {
namespace {

std::size_t index(Slot slot) {
  return static_cast<std::size_t>(slot.value());
}

}  // namespace

Roster::Roster(std::int32_t num_blocks, std::int32_t max_running) : pool_(num_blocks) {
  residents_.reserve(static_cast<std::size_t>(max_running));
}

const Sequence& Roster::sequence(Slot slot) const {
  const std::optional<Sequence>& sequence = slots_.at(index(slot));
  RONDO_CHECK(sequence.has_value());
  return *sequence;
}

Sequence& Roster::at(Slot slot) {
  std::optional<Sequence>& sequence = slots_.at(index(slot));
  RONDO_CHECK(sequence.has_value());
  return *sequence;
}

std::optional<Slot> Roster::find(RequestId id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? std::nullopt : std::optional(it->second);
}

PromptBlocks Roster::prompt_blocks(GroupId id) const {
  const auto group = groups_.find(id);
  if (group == groups_.end()) return {};
  const kv::SharedPrefix prefix(static_cast<std::int32_t>(group->second.prompt->size()));
  const auto count = static_cast<std::size_t>(prefix.num_blocks());
  if (const kv::BlockTable* cached = prefixes_.find(id)) {
    return {.blocks = cached->blocks().first(count), .num_tokens = prefix.num_tokens};
  }
  for (const Slot slot : group->second.residents) {
    if (!sequence(slot).has_shared_prefix()) continue;
    return {.blocks = sequence(slot).table().blocks().first(count), .num_tokens = prefix.num_tokens};
  }
  return {};
}

Result<void> Roster::check_spec(const SequenceSpec& spec) const {
  if (spec.prompt == nullptr || spec.prompt->empty()) {
    return fail(Code::kInvalidArgument, "request {}: the prompt is empty; give at least one token", spec.id);
  }
  if (spec.max_new_tokens < 1) {
    return fail(Code::kInvalidArgument, "request {}: max_new_tokens is {}; it must be at least 1", spec.id,
                spec.max_new_tokens);
  }
  const auto num_response = static_cast<std::int64_t>(spec.response.size());
  if (num_response >= spec.max_new_tokens) {
    return fail(Code::kInvalidArgument, "request {}: it has {} of at most {} response tokens already",
                spec.id, num_response, spec.max_new_tokens);
  }
  if (spec.num_stored >= std::ssize(*spec.prompt) + num_response) {
    return fail(Code::kInvalidArgument, "request {}: KV of {} positions is stored, but it has {} tokens",
                spec.id, spec.num_stored, std::ssize(*spec.prompt) + num_response);
  }
  if (by_id_.contains(spec.id)) {
    return fail(Code::kInvalidArgument, "request {} is already running; ids of live requests must differ",
                spec.id);
  }
  const auto group = groups_.find(spec.group);
  if (group != groups_.end() && *group->second.prompt != *spec.prompt) {
    return fail(Code::kInvalidArgument,
                "request {}: its prompt differs from that of its group {}; the samples of a group share one "
                "prompt",
                spec.id, spec.group);
  }
  const auto num_prompt = static_cast<std::int64_t>(spec.prompt->size());
  const std::int64_t max_tokens = num_prompt + spec.max_new_tokens;
  const std::int64_t needed = kv::blocks_for(max_tokens - 1);
  if (needed > pool_.num_blocks() || max_tokens > std::numeric_limits<std::int32_t>::max()) {
    return fail(
        Code::kResourceExhausted,
        "request {}: a prompt of {} tokens and up to {} new ones needs {} KV blocks of {} tokens, the "
        "pool has {}; give the KV cache more memory or lower the length limit",
        spec.id, num_prompt, spec.max_new_tokens, needed, kv::kBlockTokens, pool_.num_blocks());
  }
  return {};
}

Slot Roster::take_slot(Sequence sequence) {
  if (free_slots_.empty()) {
    free_slots_.emplace_back(static_cast<std::int32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const Slot slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[index(slot)].emplace(std::move(sequence));
  return slot;
}

Result<Slot> Roster::add(SequenceSpec spec) {
  RONDO_TRY(check_spec(spec));
  Group& group = groups_[spec.group];
  ++group.num_live;
  group.keeps_prompt |= spec.keep_prompt;
  if (group.prompt == nullptr) group.prompt = spec.prompt;
  spec.prompt = group.prompt;  // one copy per group
  const RequestId id = spec.id;
  const std::int64_t arrival = next_arrival_++;
  const Slot slot = take_slot(Sequence(std::move(spec), arrival, pool_));
  by_id_.emplace(id, slot);
  waiting_.emplace(arrival, slot);
  return slot;
}

void Roster::admit(const Admission& admission, std::span<const BlockId> blocks) {
  Sequence& sequence = at(admission.slot);
  kv::BlockTable table(pool_);
  if (admission.takes_cached_prefix) {
    table = prefixes_.take(admission.group);
  } else {
    table.share(blocks.first(static_cast<std::size_t>(admission.num_shared_blocks)));
  }
  const auto num_held = static_cast<std::size_t>(table.size());
  RONDO_CHECK(std::ranges::equal(table.blocks(), blocks.first(num_held)));
  table.acquire(blocks.subspan(num_held));
  sequence.admit(std::move(table), admission.num_ready_tokens);
  insert_resident(admission.slot);
  groups_.at(admission.group).residents.push_back(admission.slot);
  waiting_.erase(sequence.arrival());
}

void Roster::insert_resident(Slot slot) {
  const auto by_arrival = [this](Slot a, Slot b) { return at(a).arrival() < at(b).arrival(); };
  residents_.insert(std::ranges::upper_bound(residents_, slot, by_arrival), slot);
}

void Roster::grow(Slot slot, std::span<const BlockId> free_blocks) {
  at(slot).grow(free_blocks);
}

std::int32_t Roster::advance(Slot slot, std::int32_t end) {
  return at(slot).advance(end);
}

void Roster::append(Slot slot, Token token) {
  at(slot).append(token);
}

void Roster::replace_tail(Slot slot, std::int32_t num_kept, std::span<const BlockId> tail) {
  at(slot).replace_tail(num_kept, tail);
}

kv::BlockTable Roster::take_blocks(Slot slot) {
  Sequence& sequence = at(slot);
  std::erase(sequence.parked() ? parked_ : residents_, slot);
  std::erase(groups_.at(sequence.spec().group).residents, slot);
  return sequence.preempt();
}

void Roster::preempt(Slot slot) {
  RONDO_CHECK(!at(slot).parked());
  take_blocks(slot);  // drops them
  waiting_.emplace(at(slot).arrival(), slot);
}

void Roster::park(Slot slot) {
  at(slot).park();
  std::erase(residents_, slot);
  parked_.push_back(slot);
}

void Roster::evict_parked(Slot slot) {
  RONDO_CHECK(at(slot).parked());
  take_blocks(slot);
  ++num_parked_without_blocks_;
}

void Roster::resume(Slot slot, std::int32_t chunk_tokens) {
  Sequence& sequence = at(slot);
  sequence.resume(chunk_tokens);
  if (sequence.resident()) {
    std::erase(parked_, slot);
    insert_resident(slot);
  } else {
    --num_parked_without_blocks_;
    waiting_.emplace(sequence.arrival(), slot);
  }
}

void Roster::evict_prefix(GroupId group) {
  prefixes_.take(group);
  forget_if_unused(group);
}

void Roster::drop_prompt(GroupId id) {
  const auto group = groups_.find(id);
  if (group == groups_.end()) return;
  group->second.keeps_prompt = false;
  if (group->second.num_live == 0) evict_prefix(id);
}

// A group stays while a sample is live or its prompt is in the cache.
void Roster::forget_if_unused(GroupId group) {
  if (groups_.at(group).num_live == 0 && prefixes_.find(group) == nullptr) groups_.erase(group);
}

bool Roster::keeps_prefix(const Sequence& leaving) const {
  const Group& group = groups_.at(leaving.spec().group);
  const bool siblings_wait = group.num_live > static_cast<std::int32_t>(group.residents.size());
  return leaving.has_shared_prefix() && leaving.num_prompt() > 1 && group.residents.size() == 1 &&
         (siblings_wait || group.keeps_prompt);
}

Finished Roster::remove(Slot slot, FinishReason reason) {
  Sequence& sequence = at(slot);
  const GroupId group = sequence.spec().group;
  if (sequence.resident()) {
    const bool keep = keeps_prefix(sequence);
    kv::BlockTable table = take_blocks(slot);
    if (keep) {
      table.truncate(kv::SharedPrefix(sequence.num_prompt()).num_blocks());
      prefixes_.put(group, std::move(table));
    }
  } else if (sequence.parked()) {
    --num_parked_without_blocks_;
  } else {
    waiting_.erase(sequence.arrival());
  }
  by_id_.erase(sequence.spec().id);
  Finished finished{sequence.spec().id, slot, reason, sequence.take_response()};
  slots_[index(slot)].reset();
  free_slots_.push_back(slot);
  Group& rest = groups_.at(group);
  const bool is_cached = prefixes_.find(group) != nullptr;
  if (--rest.num_live == 0 && is_cached && !rest.keeps_prompt) prefixes_.take(group);
  forget_if_unused(group);
  return finished;
}

void Roster::drop_kv() {
  while (!residents_.empty()) preempt(residents_.back());
  while (!parked_.empty()) evict_parked(parked_.back());
  while (!prefixes_.entries().empty()) evict_prefix(prefixes_.entries().back().group);
  for (std::optional<Sequence>& sequence : slots_) {
    if (sequence) sequence->forget_stored();
  }
}

void Roster::check_invariants() const {
  pool_.check_invariants();
  check_blocks();
  check_groups();
  RONDO_CHECK_EQ(residents_.size() + parked_.size() + waiting_.size() +
                     static_cast<std::size_t>(num_parked_without_blocks_),
                 by_id_.size());
  std::int64_t last_arrival = -1;
  for (const Slot slot : residents_) {
    const Sequence& resident = sequence(slot);
    RONDO_CHECK(resident.resident());
    RONDO_CHECK_LT(last_arrival, resident.arrival());
    RONDO_CHECK_GE(resident.num_remaining(), 1);
    RONDO_CHECK_LE(kv::blocks_for(resident.num_computed()), resident.table().size());
    RONDO_CHECK_LE(resident.table().size(), resident.peak_blocks());
    last_arrival = resident.arrival();
  }
  for (const Slot slot : parked_) {
    RONDO_CHECK(sequence(slot).resident());
    RONDO_CHECK(sequence(slot).parked());
    RONDO_CHECK_EQ(sequence(slot).num_remaining(), 1);
  }
  for (const auto& [arrival, slot] : waiting_) {
    const Sequence& waiting = sequence(slot);
    RONDO_CHECK_EQ(waiting.arrival(), arrival);
    RONDO_CHECK(waiting.state() == SequenceState::kWaiting);
    RONDO_CHECK_EQ(waiting.num_computed(), 0);
    RONDO_CHECK(waiting.table().empty());
  }
}

// Every reference belongs to a table, and only full blocks are in two tables.
void Roster::check_blocks() const {
  std::vector<std::int32_t> holders(static_cast<std::size_t>(pool_.num_blocks()));
  const auto count = [&holders](std::span<const BlockId> blocks) {
    for (const BlockId block : blocks) ++holders[static_cast<std::size_t>(block.value())];
  };
  for (const std::vector<Slot>* holding : {&residents_, &parked_}) {
    for (const Slot slot : *holding) count(sequence(slot).table().blocks());
  }
  for (const auto& entry : prefixes_.entries()) count(entry.table.blocks());
  for (std::int32_t i = 0; i < pool_.num_blocks(); ++i) {
    RONDO_CHECK_EQ(pool_.ref_count(BlockId(i)), holders[static_cast<std::size_t>(i)]);
  }
  for (const Slot slot : residents_) {
    const Sequence& resident = sequence(slot);
    const auto num_frozen = static_cast<std::size_t>(resident.num_computed() / kv::kBlockTokens);
    for (const BlockId block : resident.table().blocks().subspan(num_frozen)) {
      RONDO_CHECK_EQ(pool_.ref_count(block), 1);
    }
  }
}

// A group's prompt KV is in one place: being computed once, held by residents, or cached.
void Roster::check_groups() const {
  std::int32_t num_live = 0;
  std::size_t num_residents = 0;
  for (const auto& [id, group] : groups_) {
    if (group.num_live == 0) RONDO_CHECK(group.keeps_prompt && prefixes_.find(id) != nullptr);
    num_live += group.num_live;
    num_residents += group.residents.size();
    const auto num_computing = std::ranges::count_if(
        group.residents, [this](Slot slot) { return !sequence(slot).has_shared_prefix(); });
    if (num_computing > 0) RONDO_CHECK_EQ(group.residents.size(), 1U);
    if (prefixes_.find(id) != nullptr) RONDO_CHECK(group.residents.empty());
  }
  RONDO_CHECK_EQ(num_live, this->num_live());
  RONDO_CHECK_EQ(num_residents, residents_.size() + parked_.size());
  for (const auto& entry : prefixes_.entries()) RONDO_CHECK(groups_.contains(entry.group));
}

}  // namespace rondo::batch
