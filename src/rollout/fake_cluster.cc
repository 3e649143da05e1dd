#include "rollout/fake_cluster.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "kv/block_pool.h"

namespace rondo::rollout {

void FakeCluster::add_instance(const InstanceSpec& spec) {
  RONDO_CHECK(scheduler_->add_instance(spec).has_value());
  instances_[spec.id] = {};
  instances_[spec.id].spec = spec;
  instances_[spec.id].synced = now_;
  instances_[spec.id].epoch = next_epoch_++;  // no event from before a failure is its own
}

void FakeCluster::fail_instance(InstanceId id) {
  scheduler_->instance_failed(id);
  instances_.erase(id);
}

void FakeCluster::add_group(const GroupSpec& spec) {
  const auto added = scheduler_->add_group(spec);
  RONDO_CHECK(added.has_value());
  for (const SampleSpec& sample : spec.samples) {
    samples_[sample.id] = {.prompt_tokens = spec.prompt_tokens, .length = sample.true_tokens};
  }
}

bool FakeCluster::step() {
  assign_all();
  prefetch();
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    const auto it = instances_.find(event.instance);
    if (it == instances_.end() || it->second.epoch != event.epoch) continue;  // overtaken by a later one
    Instance& instance = it->second;
    now_ = event.time;
    advance(instance);
    constexpr double kRounding = 1e-6;
    if (!instance.ends.empty() && instance.ends.begin()->first <= instance.steps + kRounding) {
      end_chunk(instance, instance.ends.begin()->second);
    } else {
      preempt_latest(instance);
    }
    admit_queued(instance);
    schedule(instance);
    return true;
  }
  return false;
}

void FakeCluster::assign_all() {
  for (auto next = scheduler_->plan();; next = scheduler_->plan()) {
    if (!next) {
      idle_ = next.error();
      return;
    }
    scheduler_->commit(*next);
    if (observer_.assigned) observer_.assigned(*next);
    samples_.at(next->request).chunk = next->max_tokens;
    Instance& instance = instances_.at(next->placement.instance);
    advance(instance);
    if (scheduler_->rules().dispatch == Dispatch::kChunks) {
      const Sample& sample = samples_.at(next->request);
      const std::int32_t prefill = sample.prompt_tokens + sample.generated - next->placement.cached_tokens;
      begin(instance, next->request,
            cost_.per_prefill_token_s * prefill + cost_.per_moved_token_s * next->placement.moved_tokens);
    } else {
      instance.queue.push_back(next->request);
      admit_queued(instance);
    }
    schedule(instance);
  }
}

void FakeCluster::prefetch() {
  constexpr std::int32_t kDepth = 4;
  while (const auto prefetch = scheduler_->plan_prefetch(kDepth)) {
    scheduler_->commit(*prefetch);
    if (observer_.prefetched) observer_.prefetched(*prefetch);
  }
}

void FakeCluster::begin(Instance& instance, RequestId request, double delay_s) {
  const Sample& sample = samples_.at(request);
  const std::int32_t tokens = std::min(sample.chunk, sample.length - sample.generated);
  Running running{.request = request,
                  .end = instance.steps + tokens,
                  .kv_tokens = sample.prompt_tokens + sample.generated,
                  .start = instance.steps,
                  .order = next_order_++};
  instance.kv_tokens += static_cast<double>(running.kv_tokens);
  instance.synced += delay_s;
  instance.ends.emplace(running.end, request);
  instance.by_order.emplace(running.order, request);
  instance.running.emplace(request, running);
}

// Takes it off the instance; returns the tokens it generated there.
std::int64_t FakeCluster::leave(Instance& instance, RequestId request) {
  const Running running = instance.running.at(request);
  const std::int64_t tokens = std::llround(std::min(instance.steps, running.end) - running.start);
  instance.kv_tokens -= static_cast<double>(running.kv_tokens) + (instance.steps - running.start);
  instance.ends.erase({running.end, request});
  instance.by_order.erase(running.order);
  instance.running.erase(request);
  return tokens;
}

double FakeCluster::step_time(const Instance& instance) const {
  return cost_.step_s + cost_.per_sequence_s * static_cast<double>(instance.running.size()) +
         cost_.per_kv_token_s * instance.kv_tokens;
}

// Brings an instance's token counts up to now.
void FakeCluster::advance(Instance& instance) {
  const double elapsed = now_ - instance.synced;
  if (elapsed <= 0.0) return;
  const double steps = instance.running.empty() ? 0.0 : elapsed / step_time(instance);
  instance.steps += steps;
  instance.kv_tokens += steps * static_cast<double>(instance.running.size());
  instance.synced = now_;
}

double FakeCluster::steps_until_full(const Instance& instance) const {
  if (scheduler_->rules().dispatch == Dispatch::kChunks || instance.running.size() < 2) {
    return std::numeric_limits<double>::infinity();
  }
  const auto capacity = static_cast<double>(instance.spec.num_blocks * kv::kBlockTokens);
  return std::max(0.0, capacity - instance.kv_tokens) / static_cast<double>(instance.running.size());
}

void FakeCluster::schedule(Instance& instance) {
  instance.epoch = next_epoch_++;
  if (instance.running.empty()) return;
  const double steps = std::min(instance.ends.begin()->first - instance.steps, steps_until_full(instance));
  const double start = std::max(now_, instance.synced);
  events_.push({start + std::max(0.0, steps) * step_time(instance), instance.spec.id, instance.epoch});
}

void FakeCluster::admit_queued(Instance& instance) {
  while (!instance.queue.empty() && std::ssize(instance.running) < instance.spec.max_running) {
    const RequestId request = instance.queue.front();
    const Sample& sample = samples_.at(request);
    // A block for each running response is kept, as engines do, so that an admission is not undone at once.
    const auto spare = static_cast<double>((std::ssize(instance.running) + 1) * kv::kBlockTokens);
    const double needed = instance.kv_tokens + sample.prompt_tokens + sample.generated + spare;
    const bool fits = needed <= static_cast<double>(instance.spec.num_blocks * kv::kBlockTokens);
    if (!fits && !instance.running.empty()) return;
    instance.queue.pop_front();
    begin(instance, request, cost_.per_prefill_token_s * (sample.prompt_tokens + sample.generated));
  }
}

void FakeCluster::preempt_latest(Instance& instance) {
  const RequestId request = instance.by_order.rbegin()->second;
  Sample& sample = samples_.at(request);
  const auto tokens = static_cast<std::int32_t>(leave(instance, request));
  sample.generated += tokens;
  sample.chunk -= tokens;
  instance.queue.push_front(request);
  ++preemptions_;
}

void FakeCluster::end_chunk(Instance& instance, RequestId request) {
  Sample& sample = samples_.at(request);
  const Running running = instance.running.at(request);
  instance.steps = std::max(instance.steps, running.end);
  const auto tokens = static_cast<std::int32_t>(leave(instance, request));
  sample.generated += tokens;
  if (sample.generated < sample.length) {
    scheduler_->chunk_done(request, tokens);
    if (observer_.chunk_done) observer_.chunk_done(request, tokens);
    return;
  }
  done_.push_back({request, now_, sample.length});
  scheduler_->finished(request, sample.length);
  if (observer_.finished) observer_.finished(request, sample.length);
}

}  // namespace rondo::rollout
