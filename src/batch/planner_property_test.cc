// Random arrivals, lengths, pools, budgets and cancels, every step checked by FakeEngine.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "batch/fake_engine.h"
#include "batch/planner.h"
#include "testing/times.h"

namespace rondo::batch {
namespace {

struct Load {
  std::vector<SequenceSpec> specs;
  std::int64_t max_blocks = 0;    // of the longest sequence
  std::int64_t max_tokens = 0;    // of all together
  std::uint32_t stop_period = 1;  // of FakeEngine
};

struct Weather {
  std::uint64_t seed = 0;
  int arrival_period = 1;  // one arrival in so many steps; 0: all at the start
  int cancel_period = 0;   // 0: never
  int drop_period = 0;     // 0: never
  int draft_percent = 0;
  int max_chunk = 0;     // 0: no chunks
  int keep_percent = 0;  // of samples whose group keeps its prompt
};

int draw(int low, int high) {
  return *rc::gen::resize(100, rc::gen::inRange(low, high));
}

Load draw_load() {
  Load load;
  const int num_groups = draw(1, 6);
  const int max_prompt = draw(1, 200);
  const int max_new = draw(1, 500);
  load.stop_period = static_cast<std::uint32_t>(draw(20, 3000));
  std::int64_t id = 0;
  for (int g = 0; g < num_groups; ++g) {
    std::vector<Token> prompt(static_cast<std::size_t>(draw(1, max_prompt + 1)));
    for (std::size_t i = 0; i < prompt.size(); ++i) {
      prompt[i] = static_cast<Token>((i * 31 + static_cast<std::size_t>(g) * 7) % 997);
    }
    const auto shared = std::make_shared<const std::vector<Token>>(std::move(prompt));
    const int num_samples = draw(1, 7);
    for (int s = 0; s < num_samples; ++s) {
      SequenceSpec spec{.id = RequestId(id++),
                        .group = GroupId(g),
                        .prompt = shared,
                        .max_new_tokens = draw(1, max_new + 1),
                        .sample = s};
      const std::int64_t length = std::ssize(*shared) + spec.max_new_tokens;
      load.max_blocks = std::max(load.max_blocks, kv::blocks_for(length - 1));
      load.max_tokens += length;
      load.specs.push_back(std::move(spec));
    }
  }
  return load;
}

std::unique_ptr<Planner> draw_planner(const Load& load) {
  Planner::Config config;
  config.max_running = draw(1, 13);
  config.max_batch_tokens = config.max_running + draw(0, 120);
  const auto num_blocks = static_cast<std::int32_t>(load.max_blocks) + draw(0, draw(1, 7));
  return *Planner::create(config, num_blocks);
}

// Runs `load` to its end; false as soon as something is wrong.
bool run(FakeEngine& engine, Planner& planner, const Load& load, const Weather& weather) {
  std::mt19937_64 random(weather.seed);
  const auto happens = [&random](int period) {
    return period > 0 && random() % static_cast<std::uint64_t>(period) == 0;
  };
  std::size_t next = 0;
  std::int64_t num_busy_steps = 0;
  const std::int64_t max_steps =
      load.max_tokens * (weather.drop_period > 0 || weather.max_chunk > 0 ? 30 : 1);
  while (next < load.specs.size() || planner.num_live() > 0) {
    while (next < load.specs.size() && (weather.arrival_period == 0 || happens(weather.arrival_period))) {
      SequenceSpec spec = load.specs[next++];
      spec.keep_prompt = static_cast<int>(random() % 100) < weather.keep_percent;
      engine.add(std::move(spec));
    }
    if (happens(weather.cancel_period)) engine.cancel(RequestId(static_cast<std::int64_t>(random() % 40)));
    if (happens(weather.drop_period)) engine.drop_kv();
    if (weather.keep_percent > 0 && happens(100))
      planner.drop_prompt(GroupId(static_cast<int>(random() % 7)));
    num_busy_steps += planner.num_live() > 0 ? 1 : 0;
    engine.step();
    if (engine.failed()) return false;
    if (num_busy_steps > max_steps) {
      ADD_FAILURE() << "no end after " << num_busy_steps << " steps";
      return false;
    }
  }
  for (int g = 0; g < 7; ++g) planner.drop_prompt(GroupId(g));
  const auto& pool = planner.roster().pool();
  EXPECT_EQ(pool.num_free(), pool.num_blocks()) << "blocks leaked";
  EXPECT_EQ(engine.finished().size(), load.specs.size());
  return !engine.failed();
}

Weather draw_weather() {
  return {.seed = *rc::gen::arbitrary<std::uint64_t>(), .arrival_period = draw(0, 8)};
}

void add(Planner::Stats& sum, const Planner::Stats& stats) {
  sum.steps += stats.steps;
  sum.preemptions += stats.preemptions;
  sum.recomputed_tokens += stats.recomputed_tokens;
  sum.shared_prompt_tokens += stats.shared_prompt_tokens;
  sum.evicted_prefixes += stats.evicted_prefixes;
  sum.restored_tokens += stats.restored_tokens;
  sum.evicted_parked += stats.evicted_parked;
  sum.drafted_tokens += stats.drafted_tokens;
  sum.accepted_tokens += stats.accepted_tokens;
}

FakeEngine::Behaviour behaviour(const Load& load, const Weather& weather) {
  return {.stop_period = load.stop_period,
          .draft_percent = weather.draft_percent,
          .max_chunk = weather.max_chunk,
          .seed = weather.seed + 1};
}

TEST(PlannerPropertyTest, EveryScheduleGivesTheNaiveResponses) {
  Planner::Stats sum;
  std::int64_t num_taken_over = 0;
  EXPECT_TRUE(rc::check("responses do not depend on the schedule", [&] {
    const Load load = draw_load();
    const Weather weather = draw_weather();
    for (int variant = 0; variant < 3; ++variant) {
      const auto planner = draw_planner(load);
      FakeEngine engine(*planner, behaviour(load, weather));
      RC_ASSERT(run(engine, *planner, load, weather));
      add(sum, planner->stats());
      num_taken_over += engine.num_taken_over();
    }
  }));
  // The loads reach what they are meant to test.
  EXPECT_GT(sum.steps, 50'000 * kTestTimes);
  EXPECT_GT(sum.preemptions, 100);
  EXPECT_GT(sum.recomputed_tokens, 1000);
  EXPECT_GT(sum.shared_prompt_tokens, 1000);
  EXPECT_GT(sum.evicted_prefixes, 0);
  EXPECT_GT(num_taken_over, 0);
}

TEST(PlannerPropertyTest, ChunksMovesAndDraftsChangeNoToken) {
  Planner::Stats sum;
  std::int64_t num_branch_rows = 0;
  EXPECT_TRUE(rc::check("chunks, moves, drafts", [&] {
    const Load load = draw_load();
    for (int variant = 0; variant < 3; ++variant) {
      Weather weather = draw_weather();
      weather.draft_percent = draw(0, 101);
      weather.max_chunk = variant == 0 ? 0 : draw(1, 200);
      weather.keep_percent = variant == 1 ? 50 : 0;
      weather.drop_period = variant == 2 ? draw(60, 200) : 0;
      const auto planner = draw_planner(load);
      FakeEngine engine(*planner, behaviour(load, weather));
      RC_ASSERT(run(engine, *planner, load, weather));
      add(sum, planner->stats());
      num_branch_rows += engine.num_branch_rows_accepted();
    }
  }));
  EXPECT_GT(sum.steps, 50'000 * kTestTimes);
  EXPECT_GT(sum.restored_tokens, 1000);
  EXPECT_GT(sum.evicted_parked, 10);
  EXPECT_GT(sum.preemptions, 10);
  EXPECT_GT(sum.accepted_tokens, 1000);
  EXPECT_GT(sum.drafted_tokens, sum.accepted_tokens);
  EXPECT_GT(num_branch_rows, 100);
}

TEST(PlannerPropertyTest, SurvivesCancelsAndDroppedKv) {
  std::int64_t num_cancelled = 0;
  Planner::Stats sum;
  EXPECT_TRUE(rc::check("cancels and new weights", [&] {
    const Load load = draw_load();
    Weather weather = draw_weather();
    weather.cancel_period = draw(5, 60);
    weather.drop_period = draw(60, 200);
    const auto planner = draw_planner(load);
    FakeEngine engine(*planner, behaviour(load, weather));
    RC_ASSERT(run(engine, *planner, load, weather));
    add(sum, planner->stats());
    for (const auto& [id, finished] : engine.finished()) {
      num_cancelled += finished.reason == FinishReason::kCancelled ? 1 : 0;
    }
  }));
  EXPECT_GT(num_cancelled, 10);
  EXPECT_GT(sum.preemptions, 10);
}

TEST(PlannerPropertyTest, SameInputsGiveTheSameDecisions) {
  EXPECT_TRUE(rc::check("replay", [] {
    const Load load = draw_load();
    Weather weather = draw_weather();
    weather.cancel_period = 40;
    Planner::Config config;
    config.max_running = draw(1, 13);
    config.max_batch_tokens = config.max_running + draw(0, 120);
    std::vector<std::uint64_t> digests;
    for (int replay = 0; replay < 2; ++replay) {
      const auto planner = *Planner::create(config, static_cast<std::int32_t>(load.max_blocks) + 2);
      FakeEngine engine(*planner, behaviour(load, weather));
      RC_ASSERT(run(engine, *planner, load, weather));
      digests.push_back(engine.digest());
    }
    RC_ASSERT(digests[0] == digests[1]);
  }));
}

}  // namespace
}  // namespace rondo::batch
