#include "batch/plan_step.h"

#include <algorithm>

#include "base/check.h"
#include "batch/draft_rows.h"

namespace rondo::batch {
namespace {

/// Where a waiting sequence gets its prompt's KV from.
struct PrefixSource {
  enum class Kind {
    kNone,     // compute it
    kLater,    // a sibling is computing it
    kShare,    // share the full blocks of `blocks`, copy its tail
    kTakeOver  // take all of `blocks` from the cache
  };
  Kind kind = Kind::kNone;
  std::span<const BlockId> blocks = {};
};

class StepPlanner final {
 public:
  StepPlanner(const Roster& roster, const StepLimits& limits, const Drafts& drafts, Plan& plan)
      : roster_(roster), limits_(limits), drafts_(drafts), plan_(plan), budget_(limits.max_batch_tokens) {
    plan_.clear();
    plan_.pool.reset(roster.pool());
  }

  void run() {
    plan_residents();
    if (plan_.preemptions.empty()) plan_admissions();
  }

 private:
  void plan_residents();
  bool needs_block(const Sequence& sequence) const;
  bool ensure_block(std::size_t resident);
  void plan_resident(Slot slot, const Sequence& sequence);
  void add_draft(Slot slot, const Sequence& sequence);
  bool evict_newest_prefix(GroupId but_not);
  bool evict_oldest_parked();
  bool is_evicted(Slot parked) const;
  Slot preempt_latest();
  void plan_admissions();
  PrefixSource prefix_source(GroupId id) const;
  bool make_room(const Sequence& sequence, std::int32_t num_blocks);
  std::int32_t num_evictable(GroupId but_not) const;
  bool is_evictable(GroupId group, GroupId but_not) const;
  void admit(Slot slot, const PrefixSource& source);
  void add_segment(Slot slot, std::int32_t begin, std::int32_t num_tokens, std::int32_t table_begin);
  void append_new_blocks(std::int32_t count);
  void restore(const Sequence& sequence, Slot slot, std::int32_t table_begin, Admission& admission);

  static bool decodes(const Sequence& sequence) { return sequence.state() == SequenceState::kDecoding; }
  std::int32_t table_end() const { return static_cast<std::int32_t>(plan_.tables.size()); }

  const Roster& roster_;
  const StepLimits& limits_;
  const Drafts& drafts_;
  Plan& plan_;
  std::int32_t budget_;            // tokens for prefilling; one for each decoding sequence is set aside
  std::size_t num_residents_ = 0;  // those not preempted by this plan: a prefix of roster_.residents()
  std::int32_t num_needy_ = 0;     // residents behind the present one that need a block in this step
  std::int32_t num_growing_ = 0;   // running sequences that may need further blocks
};

bool StepPlanner::needs_block(const Sequence& sequence) const {
  return kv::blocks_for(sequence.num_known()) > sequence.table().size();
}

void StepPlanner::plan_residents() {
  const std::span<const Slot> residents = roster_.residents();
  const auto max_running = static_cast<std::size_t>(limits_.max_running);
  num_residents_ = residents.size();
  for (const Slot slot : residents.first(std::min(num_residents_, max_running))) {
    const Sequence& sequence = roster_.sequence(slot);
    budget_ -= decodes(sequence) ? 1 : 0;
    num_needy_ += needs_block(sequence) ? 1 : 0;
  }
  for (std::size_t i = 0; i < std::min(num_residents_, max_running); ++i) {
    const Sequence& sequence = roster_.sequence(residents[i]);
    num_needy_ -= needs_block(sequence) ? 1 : 0;
    if (!ensure_block(i)) break;  // it was the last one and preempted itself
    plan_resident(residents[i], sequence);
  }
  for (std::size_t i = 0; i < num_residents_; ++i) {
    const Sequence& sequence = roster_.sequence(residents[i]);
    const bool grows = kv::blocks_for(sequence.num_known()) < sequence.peak_blocks();
    num_growing_ += grows ? 1 : 0;
  }
}

void StepPlanner::plan_resident(Slot slot, const Sequence& sequence) {
  const std::int32_t num_tokens = decodes(sequence) ? 1 : std::min(budget_, sequence.num_remaining());
  if (num_tokens == 0) return;
  if (!decodes(sequence)) budget_ -= num_tokens;
  const std::int32_t table_begin = table_end();
  const auto blocks = sequence.table().blocks();
  plan_.tables.insert(plan_.tables.end(), blocks.begin(), blocks.end());
  const std::int64_t needed = kv::blocks_for(sequence.num_computed() + num_tokens);
  if (needed > sequence.table().size()) append_new_blocks(1);
  add_segment(slot, sequence.num_computed(), num_tokens, table_begin);
  if (decodes(sequence)) add_draft(slot, sequence);
}

// A draft never takes a block that a resident needs in this step. Its depth stops short of the chunk's end,
// so it needs no block that the chunk would not, but for branches.
void StepPlanner::add_draft(Slot slot, const Sequence& sequence) {
  const Draft draft = drafts_.find(slot);
  if (draft.tokens.empty()) return;
  Segment& segment = plan_.segments.back();
  const DraftRoom room{.max_depth = sequence.num_left() - 1,
                       .max_rows = budget_,
                       .max_blocks = std::max(0, plan_.pool.num_free() - num_needy_)};
  const std::int32_t first_row = plan_.num_rows();
  add_draft_rows(draft, room, segment, plan_);
  const std::int32_t num_rows = plan_.num_rows() - first_row;
  segment.num_rows += num_rows;
  budget_ -= num_rows;
  for (std::int32_t row = first_row; row < plan_.num_rows(); ++row) {
    plan_.row_segments.push_back(static_cast<std::int32_t>(plan_.segments.size()) - 1);
    plan_.logit_rows.push_back(row);
  }
}

// A resident has blocks for all it knew when it was admitted, so only a decoding one ever needs another.
bool StepPlanner::ensure_block(std::size_t resident) {
  if (!needs_block(roster_.sequence(roster_.residents()[resident]))) return true;
  while (plan_.pool.num_free() == 0) {
    if (evict_newest_prefix(GroupId()) || evict_oldest_parked()) continue;
    const Slot latest = preempt_latest();
    if (num_residents_ == resident) return false;
    const bool counted = num_residents_ < static_cast<std::size_t>(limits_.max_running);
    num_needy_ -= counted && needs_block(roster_.sequence(latest)) ? 1 : 0;
  }
  return true;
}

bool StepPlanner::is_evicted(Slot parked) const {
  return std::ranges::find(plan_.parked_evictions, parked) != plan_.parked_evictions.end();
}

bool StepPlanner::evict_oldest_parked() {
  const auto next = static_cast<std::size_t>(plan_.parked_evictions.size());
  if (next == roster_.parked().size()) return false;
  const Slot parked = roster_.parked()[next];
  for (const BlockId block : roster_.sequence(parked).table().blocks()) plan_.pool.release(block);
  plan_.parked_evictions.push_back(parked);
  return true;
}

Slot StepPlanner::preempt_latest() {
  RONDO_CHECK_GT(num_residents_, 1U);  // a sequence alone fits: add() saw to it
  const Slot latest = roster_.residents()[--num_residents_];
  for (const BlockId block : roster_.sequence(latest).table().blocks()) plan_.pool.release(block);
  plan_.preemptions.push_back(latest);
  return latest;
}

bool StepPlanner::is_evictable(GroupId group, GroupId but_not) const {
  const auto taken = [group](const Admission& a) { return a.takes_cached_prefix && a.group == group; };
  return group != but_not && std::ranges::find(plan_.evictions, group) == plan_.evictions.end() &&
         std::ranges::none_of(plan_.admissions, taken);
}

// A cached prefix has no other holder, so evicting it frees all its blocks.
std::int32_t StepPlanner::num_evictable(GroupId but_not) const {
  std::int32_t count = 0;
  for (const auto& entry : roster_.prefixes().entries()) {
    if (is_evictable(entry.group, but_not)) count += entry.table.size();
  }
  return count;
}

bool StepPlanner::evict_newest_prefix(GroupId but_not) {
  const auto entries = roster_.prefixes().entries();
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (!is_evictable(entry->group, but_not)) continue;
    for (const BlockId block : entry->table.blocks()) plan_.pool.release(block);
    plan_.evictions.push_back(entry->group);
    return true;
  }
  return false;
}

void StepPlanner::plan_admissions() {
  const auto max_running = static_cast<std::size_t>(limits_.max_running);
  for (auto next = roster_.waiting().begin(); next != roster_.waiting().end();) {
    const Slot slot = next->second;
    const std::size_t num_running = num_residents_ + plan_.admissions.size();
    if (budget_ == 0 || num_running >= max_running) break;
    const Sequence& sequence = roster_.sequence(slot);
    const PrefixSource source = prefix_source(sequence.spec().group);
    if (source.kind != PrefixSource::Kind::kLater) {
      const kv::SharedPrefix prefix(sequence.num_prompt());
      auto needed = static_cast<std::int32_t>(kv::blocks_for(sequence.num_known()));
      if (source.kind == PrefixSource::Kind::kShare) needed -= prefix.full_blocks;
      if (source.kind == PrefixSource::Kind::kTakeOver) needed -= prefix.num_blocks();
      if (!make_room(sequence, needed)) {
        if (num_running == 0 && evict_oldest_parked()) continue;  // and look again
        break;
      }
      admit(slot, source);
    }
    ++next;
  }
}

PrefixSource StepPlanner::prefix_source(GroupId id) const {
  using Kind = PrefixSource::Kind;
  const Group& group = roster_.group(id);
  if (group.prompt->size() == 1) return {};  // nothing to share
  const auto holder =
      std::ranges::find_if_not(group.residents, [this](Slot slot) { return is_evicted(slot); });
  if (holder != group.residents.end()) {
    const Sequence& first = roster_.sequence(*holder);
    if (!first.has_shared_prefix()) return {.kind = Kind::kLater};
    return {.kind = Kind::kShare, .blocks = first.table().blocks()};
  }
  const bool started = std::ranges::find(plan_.admissions, id, &Admission::group) != plan_.admissions.end();
  const kv::BlockTable* cached = roster_.prefixes().find(id);
  if (cached != nullptr && is_evictable(id, GroupId())) {
    return {.kind = Kind::kTakeOver, .blocks = cached->blocks()};
  }
  if (!started) return {};
  // The first of this plan's admissions either took the cached blocks over or computes the prompt.
  const bool was_evicted = std::ranges::find(plan_.evictions, id) != plan_.evictions.end();
  if (cached == nullptr || was_evicted) return {.kind = Kind::kLater};
  return {.kind = Kind::kShare, .blocks = cached->blocks()};
}

// The first of an empty engine always fits: if it can grow, its length limit needs a block more than it does
// now.
bool StepPlanner::make_room(const Sequence& sequence, std::int32_t num_blocks) {
  const GroupId group = sequence.spec().group;
  const bool grows = kv::blocks_for(sequence.num_known()) < sequence.peak_blocks();
  const std::int32_t spare = num_growing_ + (grows ? 1 : 0);
  std::int32_t available = plan_.pool.num_free();
  if (available < num_blocks + spare) available += num_evictable(group);
  if (available < num_blocks + spare) return false;
  while (plan_.pool.num_free() < num_blocks) RONDO_CHECK(evict_newest_prefix(group));
  num_growing_ += grows ? 1 : 0;
  return true;
}

void StepPlanner::admit(Slot slot, const PrefixSource& source) {
  const Sequence& sequence = roster_.sequence(slot);
  const kv::SharedPrefix prefix(sequence.num_prompt());
  Admission admission{.slot = slot, .group = sequence.spec().group};
  const std::int32_t table_begin = table_end();
  if (source.kind != PrefixSource::Kind::kNone) {
    const bool take_over = source.kind == PrefixSource::Kind::kTakeOver;
    const auto held =
        source.blocks.first(static_cast<std::size_t>(take_over ? prefix.num_blocks() : prefix.full_blocks));
    plan_.tables.insert(plan_.tables.end(), held.begin(), held.end());
    admission.num_shared_blocks = prefix.full_blocks;
    admission.num_shared_tokens = prefix.num_tokens;
    admission.num_ready_tokens = prefix.num_tokens;
    admission.takes_cached_prefix = take_over;
  }
  const auto needed = static_cast<std::int32_t>(kv::blocks_for(sequence.num_known()));
  append_new_blocks(needed - (table_end() - table_begin));
  if (sequence.num_stored() > admission.num_ready_tokens) {
    restore(sequence, slot, table_begin, admission);
  } else if (source.kind == PrefixSource::Kind::kShare && prefix.tail_slots > 0) {
    const auto tail = static_cast<std::size_t>(prefix.full_blocks);
    plan_.copies.push_back({.from = source.blocks[tail],
                            .to = plan_.tables[static_cast<std::size_t>(table_begin) + tail],
                            .num_slots = prefix.tail_slots});
  }
  plan_.admissions.push_back(admission);
  const std::int32_t begin = admission.num_ready_tokens;
  const std::int32_t num_tokens = std::min(budget_, sequence.num_known() - begin);
  budget_ -= num_tokens;
  add_segment(slot, begin, num_tokens, table_begin);
}

// What is not shared with a sibling comes from the sequence's own stored KV, the prompt's tail included.
void StepPlanner::restore(const Sequence& sequence, Slot slot, std::int32_t table_begin,
                          Admission& admission) {
  const auto num_blocks = static_cast<std::int32_t>(kv::blocks_for(sequence.num_stored()));
  plan_.restores.push_back({.slot = slot,
                            .first_block = admission.num_shared_blocks,
                            .num_blocks = num_blocks - admission.num_shared_blocks,
                            .table_begin = table_begin});
  admission.num_ready_tokens = sequence.num_stored();
}

void StepPlanner::append_new_blocks(std::int32_t count) {
  for (; count > 0; --count) {
    const auto block = plan_.pool.allocate();
    RONDO_CHECK(block.has_value());
    plan_.tables.push_back(*block);
  }
}

void StepPlanner::add_segment(Slot slot, std::int32_t begin, std::int32_t num_tokens,
                              std::int32_t table_begin) {
  const Sequence& sequence = roster_.sequence(slot);
  const Segment segment{.slot = slot,
                        .id = sequence.spec().id,
                        .begin = begin,
                        .end = begin + num_tokens,
                        .first_row = plan_.num_rows(),
                        .num_rows = num_tokens,
                        .table_begin = table_begin,
                        .table_size = table_end() - table_begin,
                        .wants_logits = begin + num_tokens == sequence.num_known(),
                        .first_logit = static_cast<std::int32_t>(plan_.logit_rows.size())};
  const auto segment_index = static_cast<std::int32_t>(plan_.segments.size());
  for (std::int32_t position = begin; position < segment.end; ++position) {
    plan_.tokens.push_back(sequence.token(position));
    plan_.positions.push_back(position);
    plan_.row_segments.push_back(segment_index);
  }
  if (segment.wants_logits) plan_.logit_rows.push_back(plan_.num_rows() - 1);
  plan_.segments.push_back(segment);
}

}  // namespace

void plan_step(const Roster& roster, const StepLimits& limits, const Drafts& drafts, Plan& plan) {
  StepPlanner(roster, limits, drafts, plan).run();
}

}  // namespace rondo::batch
