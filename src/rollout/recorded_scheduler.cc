#include "rollout/recorded_scheduler.h"

namespace rondo::rollout {

Result<void> RecordedScheduler::add_instance(const InstanceSpec& spec) {
  RONDO_TRY(scheduler_->add_instance(spec));
  record([&] { return InstanceAdded{spec}; });
  return {};
}

std::vector<RequestId> RecordedScheduler::instance_failed(InstanceId id) {
  std::vector<RequestId> in_flight = scheduler_->instance_failed(id);
  record([&] { return InstanceFailed{id}; });
  return in_flight;
}

Result<void> RecordedScheduler::add_group(const GroupSpec& spec) {
  RONDO_TRY(scheduler_->add_group(spec));
  record([&] { return GroupAdded{spec}; });
  return {};
}

void RecordedScheduler::set_goal(std::int64_t num_groups) {
  scheduler_->set_goal(num_groups);
  record([&] { return GoalSet{num_groups}; });
}

void RecordedScheduler::commit(const Assignment& assignment) {
  scheduler_->commit(assignment);
  record([&] { return Assigned{assignment}; });
}

void RecordedScheduler::commit(std::int32_t count, const Prefetch& prefetch) {
  scheduler_->commit(prefetch);
  record([&] { return Prefetched{.count = count, .prefetch = prefetch}; });
}

void RecordedScheduler::chunk_done(RequestId request, std::int32_t new_tokens) {
  scheduler_->chunk_done(request, new_tokens);
  record([&] { return ChunkDone{request, new_tokens}; });
}

void RecordedScheduler::finished(RequestId request, std::int32_t total_tokens) {
  scheduler_->finished(request, total_tokens);
  record([&] { return RequestFinished{request, total_tokens}; });
}

void RecordedScheduler::new_policy_version() {
  scheduler_->new_policy_version();
  record([&] { return VersionChanged{}; });
}

void RecordedScheduler::set_prior(const LengthPrior& prior) {
  scheduler_->set_prior(prior);
  record([&] { return PriorSet{prior}; });
}

std::vector<RequestId> RecordedScheduler::abandon() {
  std::vector<RequestId> unfinished = scheduler_->abandon();
  record([&] { return Abandoned{}; });
  return unfinished;
}

}  // namespace rondo::rollout
