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

void Planner::plan(Plan& plan) const {
  plan_step(roster_, limits_, plan);
  plan.version = version_;
  RONDO_CHECK_EQ(plan.empty(), roster_.num_live() == 0);
}

void Planner::commit(const Plan& plan, std::span<const Sample> samples, std::vector<Finished>& finished) {
  RONDO_CHECK_EQ(plan.version, version_);
  RONDO_CHECK_EQ(samples.size(), plan.logit_rows.size());
  ++version_;
  finished.clear();
  apply_placement(plan);
  for (const Segment& segment : plan.segments) advance(segment, plan.table(segment));
  auto sample = samples.begin();
  for (const Segment& segment : plan.segments) {
    if (!segment.wants_logits) continue;
    roster_.append(segment.slot, sample->token);
    const Sequence& sequence = roster_.sequence(segment.slot);
    const bool full = std::ssize(sequence.response()) == sequence.spec().max_new_tokens;
    if (sample->finish || full) {
      finished.push_back(roster_.remove(segment.slot, sample->finish.value_or(FinishReason::kLength)));
    }
    ++sample;
  }
  ++stats_.steps;
  stats_.computed_tokens += plan.num_rows();
}

// Releases come first: the plan's new blocks may be those that they free.
void Planner::apply_placement(const Plan& plan) {
  for (const Slot slot : plan.preemptions) roster_.preempt(slot);
  for (const GroupId group : plan.evictions) roster_.evict_prefix(group);
  stats_.preemptions += std::ssize(plan.preemptions);
  stats_.evicted_prefixes += std::ssize(plan.evictions);
  auto segment =
      plan.segments.end() - std::ssize(plan.admissions);  // the admitted sequences' segments stand last
  for (const Admission& admission : plan.admissions) {
    RONDO_CHECK_EQ(segment->slot, admission.slot);
    roster_.admit(admission, plan.table(*segment++));
    stats_.shared_prompt_tokens += admission.num_shared_tokens;
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

void Planner::drop_kv() {
  roster_.drop_kv();
  ++version_;
}

}  // namespace rondo::batch
