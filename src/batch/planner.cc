#include "batch/planner.h"

#include <utility>

#include "base/check.h"

namespace rondo::batch {

Result<void> Planner::Config::validate() const {
  if (max_running < 1) {
    return fail(Code::kInvalidArgument, "max_running is {}; it must be at least 1", max_running);
  }
  if (max_batch_tokens < max_running) {
    return fail(Code::kInvalidArgument,
                "max_batch_tokens ({}) is below max_running ({}): a step must hold one token of each running "
                "response; raise the former or lower the latter",
                max_batch_tokens, max_running);
  }
  return {};
}

Result<std::unique_ptr<Planner>> Planner::create(const Config& config, std::int32_t num_blocks) {
  RONDO_TRY(config.validate());
  if (num_blocks < 1) {
    return fail(Code::kInvalidArgument, "the KV pool has {} blocks; it needs at least 1: give it more memory",
                num_blocks);
  }
  return std::unique_ptr<Planner>(new Planner(config, num_blocks));
}

Planner::Planner(const Config& config, std::int32_t num_blocks)
    : limits_{.max_batch_tokens = config.max_batch_tokens, .max_running = config.max_running},
      roster_(num_blocks, config.max_running) {}

Result<Slot> Planner::add(SequenceSpec spec) {
  Result<Slot> slot = roster_.add(std::move(spec));
  if (slot) ++version_;
  return slot;
}

void Planner::plan(Plan& plan, const Drafts& drafts) const {
  plan_step(roster_, limits_, drafts, plan);
  plan.version = version_;
  RONDO_CHECK_EQ(plan.empty(), roster_.residents().empty() && roster_.waiting().empty());
}

void Planner::Outcome::clear() {
  finished.clear();
  parked.clear();
  verdicts.clear();
}

void Planner::commit(const Plan& plan, std::span<const Sample> samples, Outcome& outcome) {
  RONDO_CHECK_EQ(plan.version, version_);
  RONDO_CHECK_EQ(samples.size(), plan.logit_rows.size());
  ++version_;
  outcome.clear();
  apply_placement(plan);
  for (const Segment& segment : plan.segments) advance(segment, plan.table(segment));
  for (const Segment& segment : plan.segments) {
    if (segment.wants_logits) accept(plan, segment, samples, outcome);
  }
  ++stats_.steps;
  stats_.computed_tokens += plan.num_rows();
}

void Planner::accept(const Plan& plan, const Segment& segment, std::span<const Sample> samples,
                     Outcome& outcome) {
  const std::optional<FinishReason> finish = follow(plan, segment, samples);
  const std::int32_t num_drafted = segment.first_row + segment.num_rows - segment.root_row() - 1;
  if (num_drafted != 0) {
    const auto accepted = static_cast<std::int32_t>(followed_.size()) - 1;
    stats_.drafted_tokens += num_drafted;
    stats_.accepted_tokens += accepted;
    outcome.verdicts.push_back({segment.slot, segment.num_drafts, accepted});
    keep_branch(plan, segment);
  }
  for (std::size_t i = 0; i < followed_.size(); ++i) {
    roster_.append(segment.slot, followed_[i]);
    if (i + 1 < followed_.size()) roster_.advance(segment.slot, roster_.sequence(segment.slot).num_known());
  }
  const Sequence& sequence = roster_.sequence(segment.slot);
  const auto length = static_cast<std::int32_t>(sequence.response().size());
  if (finish || length == sequence.spec().max_new_tokens) {
    outcome.finished.push_back(roster_.remove(segment.slot, finish.value_or(FinishReason::kLength)));
  } else if (sequence.num_left() == 0) {
    roster_.park(segment.slot);
    outcome.parked.push_back({segment.id, segment.slot, length});
  }
}

// The sampled tokens from the last known position on, as long as the drafts agree with them.
std::optional<FinishReason> Planner::follow(const Plan& plan, const Segment& segment,
                                            std::span<const Sample> samples) {
  followed_.clear();
  last_row_ = segment.root_row();
  while (true) {
    const Sample& sample =
        samples[static_cast<std::size_t>(segment.first_logit + last_row_ - segment.root_row())];
    followed_.push_back(sample.token);
    if (sample.finish) return sample.finish;
    const auto next = plan.next_row(segment, last_row_, sample.token);
    if (!next) return std::nullopt;
    last_row_ = *next;
  }
}

// Where the accepted drafts lie in a branch, its blocks become the sequence's.
void Planner::keep_branch(const Plan& plan, const Segment& segment) {
  for (const Branch& branch : plan.branches_of(segment)) {
    if (last_row_ < branch.first_row || last_row_ >= branch.first_row + branch.num_rows) continue;
    roster_.replace_tail(segment.slot, branch.num_kept, plan.own_blocks(branch));
  }
}

bool Planner::resume(RequestId id, std::int32_t chunk_tokens) {
  const auto slot = roster_.find(id);
  if (!slot || !roster_.sequence(*slot).parked()) return false;
  ++version_;
  roster_.resume(*slot, chunk_tokens);
  return true;
}

// Releases come first: the plan's new blocks may be those that they free.
void Planner::apply_placement(const Plan& plan) {
  for (const Slot slot : plan.preemptions) roster_.preempt(slot);
  for (const Slot slot : plan.parked_evictions) roster_.evict_parked(slot);
  for (const GroupId group : plan.evictions) roster_.evict_prefix(group);
  stats_.evicted_parked += std::ssize(plan.parked_evictions);
  stats_.preemptions += std::ssize(plan.preemptions);
  stats_.evicted_prefixes += std::ssize(plan.evictions);
  auto segment =
      plan.segments.end() - std::ssize(plan.admissions);  // the admitted sequences' segments stand last
  for (const Admission& admission : plan.admissions) {
    RONDO_CHECK_EQ(segment->slot, admission.slot);
    roster_.admit(admission, plan.table(*segment++));
    stats_.shared_prompt_tokens += admission.num_shared_tokens;
    stats_.restored_tokens += admission.num_ready_tokens - admission.num_shared_tokens;
  }
}

void Planner::advance(const Segment& segment, std::span<const BlockId> table) {
  const auto num_held = static_cast<std::size_t>(roster_.sequence(segment.slot).table().size());
  roster_.grow(segment.slot, table.subspan(num_held));
  stats_.recomputed_tokens += roster_.advance(segment.slot, segment.end);
}

std::optional<Finished> Planner::cancel(RequestId id) {
  const auto slot = roster_.find(id);
  if (!slot) return std::nullopt;
  ++version_;
  return roster_.remove(*slot, FinishReason::kCancelled);
}

void Planner::drop_prompt(GroupId group) {
  roster_.drop_prompt(group);
  ++version_;
}

void Planner::drop_kv() {
  roster_.drop_kv();
  ++version_;
}

}  // namespace rondo::batch
