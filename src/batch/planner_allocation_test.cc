// The decode loop allocates nothing. A binary of its own, because it replaces operator new.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "batch/planner.h"

namespace {

std::int64_t num_allocations = 0;

}  // namespace

// Not inlined, or the compiler sees free() meet new.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace rondo::batch {
namespace {

TEST(PlannerAllocationTest, DecodeStepsAllocateNothing) {
  constexpr int kNumRequests = 16;
  const auto planner = *Planner::create({}, 200);
  const auto prompt = std::make_shared<const std::vector<Token>>(100, Token{1});
  Plan plan;
  Planner::Outcome outcome;
  const std::vector<Sample> samples(kNumRequests);
  std::int64_t num_counted = 0;
  // The first round lets the plan's vectors reach their size.
  for (int round = 0; round < 2; ++round) {
    for (int id = 0; id < kNumRequests; ++id) {
      ASSERT_TRUE(planner->add({.id = RequestId(id),
                                .group = GroupId(id / 4),
                                .prompt = prompt,
                                .max_new_tokens = 300,
                                .sample = id % 4}));
    }
    while (planner->num_live() == kNumRequests) {
      const std::int64_t before = num_allocations;
      planner->plan(plan);
      const std::span step_samples = std::span(samples).first(plan.logit_rows.size());
      planner->commit(plan, step_samples, outcome);
      if (round == 0 || !plan.admissions.empty() || !outcome.finished.empty()) continue;
      ASSERT_EQ(num_allocations, before) << "at position " << plan.positions[0];
      ++num_counted;
    }
    while (planner->num_live() > 0) {
      planner->plan(plan);
      planner->commit(plan, std::span(samples).first(plan.logit_rows.size()), outcome);
    }
  }
  EXPECT_GT(num_counted, 4 * kv::kBlockTokens);  // several new blocks each
}

}  // namespace
}  // namespace rondo::batch
