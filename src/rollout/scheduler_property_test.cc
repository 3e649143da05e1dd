// Random groups, lengths, arrivals, capacities and failures under every policy, each decision checked.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "rollout/fake_cluster.h"
#include "rollout/naive_books.h"
#include "rollout/scheduler.h"
#include "testing/times.h"

namespace rondo::rollout {
namespace {

constexpr Policy kChunked[] = {Policy::kSeer, Policy::kSeerPlus, Policy::kFifo, Policy::kLeastAttained,
                               Policy::kOracleLfs};
constexpr Policy kWhole[] = {Policy::kGroupRoundRobin, Policy::kStreamOracle, Policy::kPartial};

struct Scenario {
  Scheduler::Config config;
  Scheduler::Limits limits;
  std::vector<InstanceSpec> instances;
  std::vector<GroupSpec> groups;
  int arrival_period = 0;  // steps between arrivals; 0: all at the start
  int failure_period = 0;  // 0: none fails
};

class Draw final {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  int operator()(int low, int high) {  // [low, high)
    return low + static_cast<int>(random_() % static_cast<std::uint64_t>(high - low));
  }
  bool happens(int period) { return period > 0 && (*this)(0, period) == 0; }

 private:
  std::mt19937_64 random_;
};

std::vector<GroupSpec> draw_groups(Draw& draw, int num_groups) {
  std::vector<GroupSpec> groups;
  std::int64_t id = 0;
  for (int g = 0; g < num_groups; ++g) {
    GroupSpec group{.id = GroupId(g), .prompt_tokens = draw(1, draw(2, 400)), .samples = {}};
    const int typical = draw(1, draw(2, 2000));
    const int num_samples = draw(1, 9);
    for (int s = 0; s < num_samples; ++s) {
      const int limit = draw(1, 2000);
      const int length = std::min(limit, draw(typical / 2 + 1, 2 * typical + 2));
      group.samples.push_back({.id = RequestId(id++), .max_new_tokens = limit, .true_tokens = length});
    }
    groups.push_back(group);
  }
  return groups;
}

Scenario draw_scenario(Draw& draw, Policy policy) {
  Scenario scenario;
  scenario.config.policy = policy;
  scenario.config.chunk_tokens = draw(0, 3) == 0 ? 0 : draw(1, 600);
  scenario.config.max_spread = draw(0, 10);
  scenario.config.move_threshold = draw(0, 3) == 0 ? 0 : draw(1, 600);
  scenario.config.starvation_period = draw(2, 20);
  scenario.limits.host_blocks = draw(0, 3) == 0 ? 0 : draw(1, 200);
  scenario.limits.disk_blocks = draw(0, 3) == 0 ? 0 : draw(1, 200);
  scenario.limits.draft_room_tokens = draw(0, 20);
  const int num_instances = draw(1, 5);
  const int floor = (400 + 2000 + 20) / 64 + 2;
  for (int i = 0; i < num_instances; ++i) {
    scenario.instances.push_back(
        {.id = InstanceId(i), .num_blocks = floor + draw(0, 60), .max_running = draw(1, 12)});
  }
  scenario.groups = draw_groups(draw, draw(1, 15));
  scenario.arrival_period = draw(0, 2) * draw(1, 30);
  return scenario;
}

/// One run of a scenario, with every check there is.
class Trial final {
 public:
  Trial(const Scenario& scenario, std::uint64_t seed, bool with_books)
      : scenario_(scenario),
        draw_(seed),
        scheduler_(*Scheduler::create(scenario.config, scenario.limits,
                                      {.log_median = 5.0, .sigma = 1.0, .rho = 0.6, .weight = 10.0})),
        books_(scenario.limits),
        with_books_(with_books),
        cluster_(*scheduler_, {}, observer()) {
    for (const InstanceSpec& spec : scenario.instances) {
      cluster_.add_instance(spec);
      books_.add_instance(spec);
    }
  }

  void run() {
    std::size_t next = 0;
    for (int step = 0; step < kMaxSteps && !testing::Test::HasFailure(); ++step) {
      while (next < scenario_.groups.size() &&
             (cluster_.idle() == Idle::kNothingWaiting || scenario_.arrival_period == 0 ||
              draw_.happens(scenario_.arrival_period))) {
        cluster_.add_group(scenario_.groups[next]);
        books_.add_group(scenario_.groups[next++]);
        if (scenario_.arrival_period > 0) break;
      }
      if (draw_.happens(scenario_.failure_period)) fail_an_instance();
      const bool busy = cluster_.step();
      ++num_steps_;
      scheduler_->check_invariants();
      if (!busy && next == scenario_.groups.size()) return;
    }
    ADD_FAILURE() << "no end";
  }

  const Scheduler& scheduler() const { return *scheduler_; }
  const FakeCluster& cluster() const { return cluster_; }
  const std::vector<Assignment>& assignments() const { return assignments_; }
  std::int64_t num_steps() const { return num_steps_; }
  std::int64_t num_stored_prompts() const { return num_stored_prompts_; }
  std::int64_t num_lost_under_way() const { return num_lost_under_way_; }

 private:
  static constexpr int kMaxSteps = 200000;

  FakeCluster::Observer observer() {
    return {.assigned =
                [this](const Assignment& assignment) {
                  assignments_.push_back(assignment);
                  num_stored_prompts_ += std::ranges::count_if(assignment.evictions, [](const auto& e) {
                    return e.request == RequestId() && e.to.tier == KvTier::kHost;
                  });
                  if (with_books_) books_.assign(assignment);
                },
            .prefetched =
                [this](const Prefetch& prefetch) {
                  if (with_books_) books_.prefetch(prefetch);
                },
            .chunk_done =
                [this](RequestId id, std::int32_t tokens) {
                  if (with_books_) books_.chunk_done(id, tokens);
                },
            .finished =
                [this](RequestId id, std::int32_t tokens) {
                  EXPECT_TRUE(finished_.insert(id).second) << "finished twice";
                  if (with_books_) books_.finished(id, tokens);
                }};
  }

  void fail_an_instance() {
    const InstanceSpec& spec =
        scenario_.instances[static_cast<std::size_t>(draw_(0, static_cast<int>(scenario_.instances.size())))];
    cluster_.fail_instance(spec.id);
    num_lost_under_way_ += books_.fail_instance(spec.id);
    scheduler_->check_invariants();
    if (with_books_) expect_kv_where_the_books_say();
    cluster_.add_instance(spec);
    books_.add_instance(spec);
  }

  void expect_kv_where_the_books_say() const {
    const RequestTable& table = scheduler_->requests();
    for (const auto& [id, slot] : table.groups()) {
      EXPECT_EQ(scheduler_->prompt_is_stored(id), books_.prompt_is_stored(id));
      for (const RequestSlot member : table.members(slot)) {
        const Request& request = table[member];
        if (request.state == RequestState::kFinished) continue;
        EXPECT_TRUE(scheduler_->kv_place(request.id) == books_.place(request.id));
      }
    }
  }

  Scenario scenario_;
  Draw draw_;
  std::unique_ptr<Scheduler> scheduler_;
  NaiveBooks books_;
  bool with_books_;
  std::vector<Assignment> assignments_;
  std::set<RequestId> finished_;
  std::int64_t num_steps_ = 0;
  std::int64_t num_stored_prompts_ = 0;
  std::int64_t num_lost_under_way_ = 0;
  FakeCluster cluster_;
};

void expect_complete(const Scenario& scenario, const Trial& run) {
  std::size_t num_requests = 0;
  for (const GroupSpec& group : scenario.groups) num_requests += group.samples.size();
  EXPECT_EQ(run.cluster().done().size(), num_requests);
  EXPECT_EQ(run.scheduler().requests().num_groups(), 0);
  for (const InstanceSpec& spec : scenario.instances) {
    EXPECT_EQ(run.scheduler().ledger().free_blocks(spec.id), spec.num_blocks) << "blocks leaked";
  }
  EXPECT_EQ(run.scheduler().ledger().blocks_used(KvTier::kHost), 0);
  EXPECT_EQ(run.scheduler().ledger().blocks_used(KvTier::kDisk), 0);
}

TEST(SchedulerPropertyTest, ChunkedPoliciesFinishEverythingOnceWithinCapacity) {
  Scheduler::Stats sum;
  std::int64_t num_steps = 0, num_stored_prompts = 0, num_lost_under_way = 0;
  for (std::uint64_t seed = 0; seed < 300U * kTestTimes && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    Scenario scenario = draw_scenario(draw, kChunked[seed % std::size(kChunked)]);
    scenario.failure_period = draw(0, 3) * 40;
    Trial run(scenario, seed, /*with_books=*/true);
    run.run();
    expect_complete(scenario, run);
    EXPECT_EQ(run.cluster().preemptions(), 0);
    num_steps += run.num_steps();
    num_stored_prompts += run.num_stored_prompts();
    num_lost_under_way += run.num_lost_under_way();
    const Scheduler::Stats& stats = run.scheduler().stats();
    sum.moves += stats.moves;
    sum.recomputed_tokens += stats.recomputed_tokens;
    sum.evicted_requests += stats.evicted_requests;
    sum.prefetched_requests += stats.prefetched_requests;
    sum.overdue += stats.overdue;
  }
  // The scenarios reach what they are meant to test.
  EXPECT_GT(num_steps, 25'000 * kTestTimes);
  EXPECT_GT(sum.moves, 1000);
  EXPECT_GT(sum.recomputed_tokens, 10000);
  EXPECT_GT(sum.evicted_requests, 1000);
  EXPECT_GT(sum.prefetched_requests, 100);
  EXPECT_GT(sum.overdue, 1000);
  EXPECT_GT(num_stored_prompts, 50 * kTestTimes);
  EXPECT_GT(num_lost_under_way, 50 * kTestTimes);
}

TEST(SchedulerPropertyTest, WholeGroupPoliciesFinishEverythingOnce) {
  std::int64_t preemptions = 0;
  for (std::uint64_t seed = 0; seed < 100U * kTestTimes && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    const Scenario scenario = draw_scenario(draw, kWhole[seed % std::size(kWhole)]);
    Trial run(scenario, seed, /*with_books=*/false);
    run.run();
    expect_complete(scenario, run);
    preemptions += run.cluster().preemptions();
    std::map<GroupId, std::set<InstanceId>> instances;
    for (const Assignment& a : run.assignments()) instances[a.group].insert(a.placement.instance);
    for (const auto& [group, where] : instances) EXPECT_EQ(where.size(), 1U) << "a group was split";
  }
  EXPECT_GT(preemptions, 100);
}

TEST(SchedulerPropertyTest, SameInputsGiveTheSameDecisions) {
  for (std::uint64_t seed = 0; seed < 20U * kTestTimes; ++seed) {
    Draw draw(seed);
    Scenario scenario = draw_scenario(draw, kChunked[seed % std::size(kChunked)]);
    scenario.failure_period = 50;
    Trial first(scenario, seed, /*with_books=*/false);
    Trial second(scenario, seed, /*with_books=*/false);
    first.run();
    second.run();
    EXPECT_TRUE(first.assignments() == second.assignments());
  }
}

TEST(SchedulerPropertyTest, OnlyOraclesSeeTrueLengths) {
  for (const Policy policy : kChunked) {
    Draw draw(7);
    const Scenario scenario = draw_scenario(draw, policy);
    const auto first_assignments = [&](bool told) {
      const auto scheduler = *Scheduler::create(scenario.config, scenario.limits);
      for (const InstanceSpec& spec : scenario.instances) RONDO_CHECK(scheduler->add_instance(spec));
      std::vector<Assignment> assignments;
      for (GroupSpec group : scenario.groups) {
        for (SampleSpec& sample : group.samples) sample.true_tokens = told ? sample.true_tokens : 1;
        RONDO_CHECK(scheduler->add_group(group));
      }
      for (auto next = scheduler->plan(); next; next = scheduler->plan()) {
        scheduler->commit(*next);
        assignments.push_back(*next);
      }
      return assignments;
    };
    EXPECT_EQ(first_assignments(true) == first_assignments(false), !rules_of(policy).needs_true_lengths);
  }
}

/// Watches that no waiting request starves: it is served within starvation_period decisions for each that has
/// waited longer, itself included, or, under a policy that needs no such rule, before all that arrived later.
class Patience final {
 public:
  explicit Patience(const Scheduler::Config& config)
      : period_(config.starvation_period), in_order_(!rules_of(config.policy).can_starve) {}

  void wait(RequestId request) {
    waiting_.push_back({request, decisions_ + period_ * (std::ssize(waiting_) + 1)});
  }
  void serve(RequestId request) {
    ++decisions_;
    ASSERT_EQ(std::erase_if(waiting_, [=](const Waiting& w) { return w.request == request; }), 1U);
    for (const Waiting& other : waiting_) {
      if (in_order_)
        ASSERT_GT(other.request, request) << "which arrived later";
      else
        ASSERT_GT(other.latest, decisions_) << "request " << other.request.value() << " starves";
    }
  }
  std::int64_t decisions() const { return decisions_; }

 private:
  struct Waiting {
    RequestId request;  // ids ascend as they arrive
    std::int64_t latest;
  };
  std::int64_t period_;
  bool in_order_;
  std::int64_t decisions_ = 0;
  std::vector<Waiting> waiting_;  // the one that waits longest first
};

// A stream of groups without end, of random lengths, on random instances.
void expect_patience_kept(Policy policy, std::uint64_t seed, const LengthPrior& prior) {
  Draw draw(seed);
  const Scheduler::Config config{
      .policy = policy, .chunk_tokens = draw(16, 200), .starvation_period = draw(2, 20)};
  const auto scheduler = *Scheduler::create(config, {}, prior);
  Patience patience(config);
  FakeCluster cluster(*scheduler, {},
                      {.assigned = [&](const Assignment& a) { patience.serve(a.request); },
                       .prefetched = {},
                       .chunk_done = [&](RequestId request, std::int32_t) { patience.wait(request); },
                       .finished = {}});
  const int num_instances = draw(1, 4);
  for (int i = 0; i < num_instances; ++i)
    cluster.add_instance({.id = InstanceId(i), .num_blocks = draw(50, 150), .max_running = draw(1, 8)});
  const int wanted = draw(5, 30);
  std::int64_t group = 0, request = 0;
  while (patience.decisions() < 2000 && !testing::Test::HasFailure()) {
    while (scheduler->num_waiting() < wanted) {
      GroupSpec spec{.id = GroupId(group++), .prompt_tokens = draw(1, 200), .samples = {}};
      const int samples = draw(1, 6), typical = draw(1, draw(2, 1000));
      for (int s = 0; s < samples; ++s)
        spec.samples.push_back({RequestId(request++), 2000, draw(typical / 2 + 1, 2 * typical + 2)});
      cluster.add_group(spec);
      for (const SampleSpec& sample : spec.samples) patience.wait(sample.id);
    }
    ASSERT_TRUE(cluster.step());
  }
}

// However many newer groups arrive.
TEST(SchedulerPropertyTest, NothingStarvesUnderEndlessArrivals) {
  const LengthPrior learned = {.log_median = 5.0, .sigma = 1.0, .rho = 0.6, .weight = 10.0};
  for (const Policy policy : kChunked) {
    for (std::uint64_t seed = 0; seed < 6U * kTestTimes; ++seed) {
      SCOPED_TRACE(testing::Message() << "policy " << static_cast<int>(policy) << " seed " << seed);
      expect_patience_kept(policy, seed, seed % 2 == 0 ? learned : LengthPrior{});
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace rondo::rollout
