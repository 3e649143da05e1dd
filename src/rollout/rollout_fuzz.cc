// Text from outside: an input log, replayed on small cores, and a step-cost file. The first byte chooses.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "rollout/input_log.h"
#include "rollout/step_cost.h"

namespace {

using namespace rondo;
using namespace rondo::rollout;

// Whatever is read is written as it was; whatever is replayed leaves the cores in order.
void check_log(std::string_view text) {
  const auto log = parse_input_log(text);
  if (!log) return;
  std::string again;
  for (const TimedInput& input : *log) again += input_line(input);
  const auto back = parse_input_log(again);
  RONDO_CHECK(back.has_value() && *back == *log);
  Scheduler::Config config{.chunk_tokens = 64};
  const auto scheduler = *Scheduler::create(config, {.host_blocks = 20, .disk_blocks = 20});
  DraftLengthPlanner drafts({}, *StepCost::create({{1}, {0, 8}, {1}}, {1, 2}));
  const auto replayed = replay(*log, {.scheduler = scheduler.get(), .drafts = &drafts});
  scheduler->check_invariants();
  if (!replayed) RONDO_CHECK(!replayed.error().message().empty());
}

void check_step_cost(std::string_view text) {
  const auto cost = parse_step_cost(text);
  if (!cost) return;
  const auto back = parse_step_cost(step_cost_json(*cost));
  RONDO_CHECK(back.has_value() && *back == *cost);
  RONDO_CHECK_GT(cost->seconds(3, 2, 100), 0.0);
}

// Two requests, a chunk of which ends, and a failure.
std::string a_log() {
  const auto scheduler = *Scheduler::create({.chunk_tokens = 64}, {.host_blocks = 20, .disk_blocks = 20});
  std::string text;
  const auto add = [&text](RecordedInput input) { text += input_line({1, std::move(input)}); };
  const InstanceSpec instance{InstanceId(0), 9, 2};
  const GroupSpec group{GroupId(1), 70, {{RequestId(2), 200, 0}, {RequestId(3), 200, 0}}};
  RONDO_CHECK(scheduler->add_instance(instance).has_value() && scheduler->add_group(group).has_value());
  add(InstanceAdded{instance});
  add(GroupAdded{group});
  for (const bool ends : {false, true, true}) {
    const auto next = scheduler->plan();
    scheduler->commit(*next);
    add(Assigned{*next});
    if (!ends) continue;
    scheduler->chunk_done(next->request, 30);
    add(ChunkDone{next->request, 30});
  }
  add(DraftSeen{{true, 1}, 4, 2});
  add(RequestFinished{RequestId(2), 5});
  add(InstanceFailed{InstanceId(0)});
  return text;
}

}  // namespace

std::vector<std::string> fuzz_seeds();
std::vector<std::string> fuzz_seeds() {
  std::string log(1, '\0');
  log.append(a_log());
  std::string cost(1, '\1');
  cost.append(step_cost_json(*StepCost::create({{1, 2}, {0}, {5}}, {1, 2})));
  return {log, cost};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    check_log(text);
  } else {
    check_step_cost(text);
  }
  return 0;
}
