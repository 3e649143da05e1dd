#include "rollout/request_table.h"

#include <algorithm>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/check.h"

namespace rondo::rollout {

Result<void> RequestTable::check(const GroupSpec& spec) const {
  if (group_by_id_.contains(spec.id)) {
    return fail(Code::kInvalidArgument, "group {} is already here; ids of unfinished groups must differ",
                spec.id);
  }
  const bool negative =
      std::ranges::any_of(spec.samples, [](const SampleSpec& s) { return s.id.value() < 0; });
  if (spec.id.value() < 0 || negative) {
    return fail(Code::kInvalidArgument, "group {}: ids of groups and requests must not be negative", spec.id);
  }
  if (spec.prompt_tokens < 1 || spec.samples.empty()) {
    return fail(Code::kInvalidArgument,
                "group {} has {} prompt tokens and {} samples; it needs at least one of each", spec.id,
                spec.prompt_tokens, spec.samples.size());
  }
  if (std::ranges::any_of(spec.past_lengths, [](std::int32_t tokens) { return tokens < 1; })) {
    return fail(Code::kInvalidArgument, "group {}: a past length is below 1", spec.id);
  }
  std::unordered_set<RequestId> ids;
  for (const SampleSpec& sample : spec.samples) {
    const std::int64_t total = std::int64_t{spec.prompt_tokens} + sample.max_new_tokens;
    if (sample.max_new_tokens < 1 || total > std::numeric_limits<std::int32_t>::max()) {
      return fail(Code::kInvalidArgument, "request {}: max_new_tokens is {}; it must be from 1 to {}",
                  sample.id, sample.max_new_tokens,
                  std::numeric_limits<std::int32_t>::max() - spec.prompt_tokens);
    }
    if (sample.true_tokens < 0 || sample.true_tokens > sample.max_new_tokens) {
      return fail(
          Code::kInvalidArgument,
          "request {}: its known length is {}; it must be from 1 to max_new_tokens ({}), or 0 for none",
          sample.id, sample.true_tokens, sample.max_new_tokens);
    }
    if (request_by_id_.contains(sample.id) || !ids.insert(sample.id).second) {
      return fail(Code::kInvalidArgument, "request {} occurs twice; ids of unfinished requests must differ",
                  sample.id);
    }
  }
  return {};
}

Result<GroupSlot> RequestTable::add(const GroupSpec& spec) {
  RONDO_TRY(check(spec));
  const auto num_samples = static_cast<std::int32_t>(spec.samples.size());
  Group group{.id = spec.id,
              .first = take_slots(num_samples),
              .num_samples = num_samples,
              .prompt_tokens = spec.prompt_tokens,
              .is_learned = spec.is_learned};
  if (free_groups_.empty()) free_groups_.push_back(groups_.push_back({}));
  const GroupSlot slot = free_groups_.back();
  free_groups_.pop_back();
  for (std::int32_t i = 0; i < num_samples; ++i) {
    const SampleSpec& sample = spec.samples[static_cast<std::size_t>(i)];
    const RequestSlot request(group.first.value() + i);
    requests_[request] = {.id = sample.id,
                          .group = slot,
                          .state = RequestState::kWaiting,
                          .is_probe = i == 0,
                          .max_new_tokens = sample.max_new_tokens,
                          .true_tokens = sample.true_tokens,
                          .priority = {.arrival = next_arrival_++}};
    group.longest_true = std::max(group.longest_true, sample.true_tokens);
    request_by_id_.emplace(sample.id, request);
  }
  group.past_lengths = spec.past_lengths;
  if (!group.past_lengths.empty()) group.longest_past = *std::ranges::max_element(group.past_lengths);
  groups_[slot] = std::move(group);
  group_by_id_.emplace(spec.id, slot);
  return slot;
}

RequestSlot RequestTable::take_slots(std::int32_t count) {
  std::vector<RequestSlot>& runs = free_runs_[count];
  if (!runs.empty()) {
    const RequestSlot first = runs.back();
    runs.pop_back();
    return first;
  }
  const RequestSlot first(num_slots());
  requests_.extend_to(RequestSlot(first.value() + count - 1));
  return first;
}

void RequestTable::remove(GroupSlot slot) {
  for (const RequestSlot request : members(slot)) {
    request_by_id_.erase(requests_[request].id);
    requests_[request] = {};
  }
  const Group& group = groups_[slot];
  group_by_id_.erase(group.id);
  free_runs_[group.num_samples].push_back(group.first);
  free_groups_.push_back(slot);
  groups_[slot] = {};
}

std::optional<RequestSlot> RequestTable::find(RequestId id) const {
  const auto it = request_by_id_.find(id);
  return it == request_by_id_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<GroupSlot> RequestTable::find(GroupId id) const {
  const auto it = group_by_id_.find(id);
  return it == group_by_id_.end() ? std::nullopt : std::optional(it->second);
}

void RequestTable::check_invariants() const {
  std::size_t num_requests = 0;
  for (const auto& [id, slot] : group_by_id_) {
    const Group& group = groups_[slot];
    RONDO_CHECK_EQ(group.id, id);
    std::int32_t num_finished = 0;
    for (const RequestSlot member : members(slot)) {
      const Request& request = requests_[member];
      RONDO_CHECK_EQ(request.group, slot);
      RONDO_CHECK_EQ(request_by_id_.at(request.id), member);
      RONDO_CHECK(request.state != RequestState::kUnused);
      RONDO_CHECK_LE(request.generated, request.max_new_tokens);
      RONDO_CHECK_EQ(request.is_probe, member == group.first);
      num_finished += request.state == RequestState::kFinished ? 1 : 0;
      ++num_requests;
    }
    RONDO_CHECK_EQ(group.num_finished, num_finished);
    RONDO_CHECK_LT(group.num_finished, group.num_samples);
  }
  RONDO_CHECK_EQ(request_by_id_.size(), num_requests);
}

}  // namespace rondo::rollout
