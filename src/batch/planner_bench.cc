// The cost of deciding: one plan and commit of a decode step.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "base/check.h"
#include "batch/planner.h"

namespace rondo::batch {
namespace {

// range(0) sequences of 8 to a group, at about range(1) positions each.
void decode_step(benchmark::State& state) {
  const auto num_running = static_cast<std::int32_t>(state.range(0));
  const auto length = static_cast<std::int32_t>(state.range(1));
  constexpr std::int32_t kMaxNew = 1 << 14;
  Planner::Config config;
  config.max_running = num_running;
  config.max_batch_tokens = 8192 + num_running;
  const auto num_blocks = static_cast<std::int32_t>(num_running * kv::blocks_for(length + kMaxNew));
  const auto planner = *Planner::create(config, num_blocks);
  const auto prompt = std::make_shared<const std::vector<Token>>(static_cast<std::size_t>(length), Token{1});
  for (std::int32_t id = 0; id < num_running; ++id) {
    RONDO_CHECK(planner->add({.id = RequestId(id),
                              .group = GroupId(id / 8),
                              .prompt = prompt,
                              .max_new_tokens = kMaxNew,
                              .sample = id % 8}));
  }
  Plan plan;
  Planner::Outcome outcome;
  const std::vector<Sample> samples(static_cast<std::size_t>(num_running));
  const auto step = [&] {
    planner->plan(plan);
    planner->commit(plan, std::span(samples).first(plan.logit_rows.size()), outcome);
  };
  while (static_cast<std::int32_t>(plan.logit_rows.size()) < num_running) step();
  for (auto _ : state) step();
  state.SetItemsProcessed(state.iterations() * num_running);
}
BENCHMARK(decode_step)->Args({32, 128})->Args({256, 128})->Args({256, 8192})->Iterations(10000);

}  // namespace
}  // namespace rondo::batch
