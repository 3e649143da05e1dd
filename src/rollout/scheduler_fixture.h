// What the tests of Scheduler share: short calls, each with a check of the invariants.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/check.h"
#include "rollout/scheduler.h"

namespace rondo::rollout {

constexpr KvPlace on(std::int32_t instance) {
  return {KvTier::kInstance, InstanceId(instance)};
}

// Group g has the requests 10 g, 10 g + 1, …; the first is its probe.
inline GroupSpec group(std::int64_t g, int num_samples, int limit = 1000, int prompt = 65,
                       const std::vector<int>& lengths = {}) {
  GroupSpec spec{.id = GroupId(g), .prompt_tokens = prompt, .samples = {}};
  for (int i = 0; i < num_samples; ++i) {
    const int length = lengths.empty() ? 0 : lengths[static_cast<std::size_t>(i)];
    spec.samples.push_back({RequestId(10 * g + i), limit, length});
  }
  return spec;
}

class SchedulerFixture : public testing::Test {
 protected:
  void make(const Scheduler::Config& config, const Scheduler::Limits& limits = {},
            const LengthPrior& prior = {}) {
    scheduler_ = *Scheduler::create(config, limits, prior);
  }
  void make(Policy policy, int chunk_tokens = 500) {
    make({.policy = policy, .chunk_tokens = chunk_tokens, .starvation_period = 1000});
  }
  void add_instance(int id, int num_blocks = 1000, int max_running = 100) {
    RONDO_CHECK(scheduler_->add_instance({InstanceId(id), num_blocks, max_running}).has_value());
  }
  void add(const GroupSpec& spec) {
    const auto added = scheduler_->add_group(spec);
    ASSERT_TRUE(added.has_value()) << added.error().message();
  }

  Assignment assign() {
    const auto next = scheduler_->plan();
    RONDO_CHECK(next.has_value());
    EXPECT_TRUE(next == scheduler_->plan()) << "planning changed something";
    scheduler_->commit(*next);
    scheduler_->check_invariants();
    return *next;
  }
  // The order in which everything waiting is served.
  std::vector<std::int64_t> serve_all() {
    std::vector<std::int64_t> order;
    while (scheduler_->num_waiting() > 0) order.push_back(assign().request.value());
    return order;
  }
  void chunk_done(std::int64_t request, int tokens) {
    scheduler_->chunk_done(RequestId(request), tokens);
    scheduler_->check_invariants();
  }
  void finish(std::int64_t request, int tokens) {
    scheduler_->finished(RequestId(request), tokens);
    scheduler_->check_invariants();
  }
  Idle idle() {
    const auto next = scheduler_->plan();
    RONDO_CHECK(!next.has_value());
    return next.error();
  }

  std::unique_ptr<Scheduler> scheduler_;
};

using Order = std::vector<std::int64_t>;

}  // namespace rondo::rollout
