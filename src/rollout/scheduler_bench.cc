// The cost of deciding at the size of a large cluster: plan, commit and the event that follows.
//
// range(0) instances, range(1) requests in groups of 16. Each iteration ends one random chunk in flight (one
// in eight ends the response) and makes the assignment that this allows. "bytes" is the memory per request.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <memory>
#include <random>
#include <vector>

#include "base/check.h"
#include "rollout/length_model.h"
#include "rollout/scheduler.h"

namespace rondo::rollout {
namespace {

std::size_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

struct Running {
  RequestId request;
  std::int32_t generated = 0;
  std::int32_t chunk = 0;
};

void decide(benchmark::State& state, Policy policy) {
  const auto num_instances = static_cast<std::int32_t>(state.range(0));
  const auto num_groups = static_cast<int>(state.range(1) / 16);
  constexpr std::int32_t kMaxNew = 1 << 16;
  const auto groups = draw_groups({8000, 0.9, 0.6, kMaxNew}, num_groups, 16, 600, 1);
  const std::size_t before = heap_bytes();
  const auto scheduler = *Scheduler::create({.policy = policy}, {.host_blocks = std::int64_t{1} << 40},
                                            {.log_median = 9.0, .sigma = 0.9, .rho = 0.5, .weight = 100.0});
  for (std::int32_t i = 0; i < num_instances; ++i) {
    RONDO_CHECK(scheduler->add_instance({InstanceId(i), 20000, 64}).has_value());
  }
  for (const GroupSpec& group : groups) RONDO_CHECK(scheduler->add_group(group).has_value());
  std::vector<Running> running;
  const auto assign_all = [&] {
    for (auto next = scheduler->plan(); next; next = scheduler->plan()) {
      scheduler->commit(*next);
      running.push_back({next->request, next->generated, next->max_tokens});
    }
  };
  assign_all();
  std::mt19937_64 random(2);
  const auto step = [&] {
    if (running.empty()) return false;
    std::swap(running[random() % running.size()], running.back());
    const Running ended = running.back();
    running.pop_back();
    const bool full = ended.generated + ended.chunk == kMaxNew;
    if (full || random() % 8 == 0) {
      scheduler->finished(ended.request, ended.generated + ended.chunk);
    } else {
      scheduler->chunk_done(ended.request, ended.chunk);
    }
    assign_all();
    return true;
  };
  for (std::int64_t i = 0; i < state.range(1) && step(); ++i) {
  }
  const std::int64_t first = scheduler->stats().assignments;
  for (auto _ : state) {
    if (!step()) break;
  }
  state.counters["assignments"] = static_cast<double>(scheduler->stats().assignments - first);
  state.counters["bytes"] = static_cast<double>(heap_bytes() - before) / static_cast<double>(state.range(1));
}

void seer(benchmark::State& state) {
  decide(state, Policy::kSeer);
}
void seer_plus(benchmark::State& state) {
  decide(state, Policy::kSeerPlus);
}
void least_attained(benchmark::State& state) {
  decide(state, Policy::kLeastAttained);
}

BENCHMARK(seer)->Args({64, 1 << 17})->Args({4096, 1 << 20})->Iterations(1 << 18);
BENCHMARK(seer_plus)->Args({4096, 1 << 20})->Iterations(1 << 18);
BENCHMARK(least_attained)->Args({4096, 1 << 20})->Iterations(1 << 18);

}  // namespace
}  // namespace rondo::rollout
