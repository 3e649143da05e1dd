// A recorded run, read back and replayed to the same decisions.
#include "rollout/input_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "rollout/fake_cluster.h"
#include "rollout/length_model.h"

namespace rondo::rollout {
namespace {

const Scheduler::Config kConfig{.policy = Policy::kSeerPlus, .chunk_tokens = 100, .move_threshold = 50};
const Scheduler::Limits kLimits{.host_blocks = 40, .disk_blocks = 10};
const LengthPrior kPrior{.log_median = 5.0, .sigma = 1.0, .rho = 0.5, .weight = 10.0};

// Two steps on three instances, one of which fails, with KV lost now and then.
std::vector<TimedInput> record() {
  const auto scheduler = *Scheduler::create(kConfig, kLimits, kPrior);
  std::vector<TimedInput> log;
  std::int64_t time = 0;
  const auto add = [&](RecordedInput input) { log.push_back({time++, std::move(input)}); };
  FakeCluster cluster(*scheduler, {},
                      {.assigned = [&](const Assignment& assignment) { add(Assigned{assignment}); },
                       .prefetched =
                           [&](const Prefetch& prefetch) {
                             add(Prefetched{4, prefetch});
                           },
                       .chunk_done =
                           [&](RequestId id, std::int32_t n) {
                             add(ChunkDone{id, n});
                           },
                       .finished =
                           [&](RequestId id, std::int32_t n) {
                             add(RequestFinished{id, n});
                           }});
  const auto add_instance = [&](const InstanceSpec& spec) {
    add(InstanceAdded{spec});
    cluster.add_instance(spec);
  };
  for (int i = 0; i < 3; ++i) add_instance({InstanceId(i), 30, 6});
  for (std::uint64_t step = 0; step < 2; ++step) {
    for (GroupSpec group : draw_groups({200, 0.8, 0.5, 1000}, 10, 4, 90, step)) {
      if (step == 1) group.past_lengths = {100, 200};
      add(GroupAdded{group});
      cluster.add_group(group);
    }
    for (int events = 0; cluster.step(); ++events) {
      if (events == 20) {
        add(InstanceFailed{InstanceId(1)});
        cluster.fail_instance(InstanceId(1));
        add_instance({InstanceId(1), 30, 6});
      }
    }
    add(VersionChanged{});
    scheduler->new_policy_version();
  }
  return log;
}

std::string text_of(const std::vector<TimedInput>& log) {
  std::string text;
  for (const TimedInput& input : log) text += input_line(input);
  return text;
}

TEST(InputLogTest, AReplayDecidesTheSame) {
  const std::vector<TimedInput> log = record();
  int num_evictions = 0;
  for (const TimedInput& input : log) {
    const auto* assigned = std::get_if<Assigned>(&input.input);
    num_evictions += assigned != nullptr ? static_cast<int>(assigned->assignment.evictions.size()) : 0;
  }
  EXPECT_GT(num_evictions, 50);
  const auto read = parse_input_log(text_of(log));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_TRUE(*read == log);
  const auto scheduler = *Scheduler::create(kConfig, kLimits, kPrior);
  const auto replayed = replay(*read, {.scheduler = scheduler.get()});
  EXPECT_TRUE(replayed.has_value()) << replayed.error().message();
  scheduler->check_invariants();
  EXPECT_EQ(scheduler->stats().finished_requests, 80);
}

TEST(InputLogTest, AReplayUnderAnotherConfigSaysWhereItDeparts) {
  const std::vector<TimedInput> log = record();
  Scheduler::Config other = kConfig;
  other.policy = Policy::kFifo;
  const auto scheduler = *Scheduler::create(other, kLimits, kPrior);
  const auto replayed = replay(log, {.scheduler = scheduler.get()});
  ASSERT_FALSE(replayed.has_value());
  EXPECT_NE(replayed.error().message().find("departs from the log"), std::string::npos);
}

TEST(InputLogTest, DraftLengthsReplay) {
  const auto make = [] {
    return DraftLengthPlanner({.explore_period = 3}, *StepCost::create({{1}, {0, 8}, {1}}, {1, 2}));
  };
  DraftLengthPlanner planner = make();
  std::vector<TimedInput> log;
  for (int step = 0; step < 50; ++step) {
    DraftLoad load{.running = {}, .mean_context = 10 * step};
    load.add({.is_probe = step % 2 == 0, .finished_siblings = step % 6});
    const DraftLengths lengths = planner.plan(load);
    planner.commit(load, lengths);
    log.push_back({step, DraftPlanned{load, lengths}});
    const DraftSeen seen{{false, step % 6}, 4, step % 5};
    planner.observe(seen.draft_class, seen.drafted, seen.accepted);
    log.push_back({step, seen});
  }
  const auto read = parse_input_log(text_of(log));
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(*read == log);
  const auto scheduler = *Scheduler::create(kConfig, kLimits);
  DraftLengthPlanner again = make();
  EXPECT_TRUE(replay(*read, {.scheduler = scheduler.get(), .drafts = &again}).has_value());
  EXPECT_FALSE(replay(*read, {.scheduler = scheduler.get()}).has_value());
}

TEST(InputLogTest, EveryKindSurvivesTheText) {
  const std::vector<TimedInput> log = {{-5, GoalSet{7}},
                                       {0, Abandoned{}},
                                       {1, VersionChanged{}},
                                       {3, Prefetched{.count = 4, .prefetch = {.moves = {}, .version = 5}}},
                                       {4, PriorSet{{5.5, 1.25, 0.5, 2.0}}}};
  EXPECT_EQ(text_of(log),
            "-5 goal 7\n0 abandon\n1 version\n3 prefetch 4 0 5\n"
            "4 prior 4617878467915022336 4608308318706860032 4602678819172646912 4611686018427387904\n");
  EXPECT_TRUE(*parse_input_log(text_of(log)) == log);
}

TEST(InputLogTest, DamageIsNamedByItsLine) {
  for (const char* bad :
       {"1 goal\n", "1 goal 7 8\n", "1 goal x\n", "1 gaol 7\n", "goal 7\n", "1 goal\n2 abandon\n", "\n",
        "1 group 1 1 999999999999\n", "1 failed 99999999999\n", "1 draft_seen 2 0 0 0\n"}) {
    const auto read = parse_input_log(std::string("0 abandon\n") + bad);
    ASSERT_FALSE(read.has_value()) << bad;
    EXPECT_EQ(read.error().code(), Code::kDataLoss);
    EXPECT_NE(read.error().message().find("line 2"), std::string::npos);
  }
}

TEST(InputLogTest, ALogCutAnywhereHasItsWholeLines) {
  const std::vector<TimedInput> log = record();
  const std::string text = text_of(log).substr(0, 4'000);
  for (std::size_t size = 0; size <= text.size(); ++size) {
    const auto read = parse_input_log(std::string_view(text).substr(0, size));
    ASSERT_TRUE(read.has_value()) << size;
    ASSERT_EQ(std::ssize(*read), std::ranges::count(text.substr(0, size), '\n'));
    ASSERT_TRUE(std::ranges::equal(*read, std::span(log).first(read->size())));
  }
}

TEST(InputLogTest, AnImpossibleInputIsAnError) {
  const std::vector<RecordedInput> impossible = {InstanceFailed{InstanceId(9)},
                                                 ChunkDone{RequestId(0), 1},
                                                 ChunkDone{RequestId(9), 1},
                                                 RequestFinished{RequestId(0), 1},
                                                 Assigned{},
                                                 InstanceAdded{{InstanceId(0), 5, 5}},
                                                 DraftSeen{{}, 1, 2},
                                                 PriorSet{{5.0, 1.0, 0.5, 1.0}}};
  for (const RecordedInput& input : impossible) {
    const auto scheduler = *Scheduler::create(kConfig, kLimits);
    RONDO_CHECK(scheduler->add_instance({InstanceId(0), 30, 6}).has_value());
    RONDO_CHECK(scheduler->add_group({GroupId(0), 10, {{RequestId(0), 100, 0}}}).has_value());
    const std::vector<TimedInput> log = {{0, input}};
    EXPECT_FALSE(replay(log, {.scheduler = scheduler.get()}).has_value()) << input.index();
  }
}

}  // namespace
}  // namespace rondo::rollout
