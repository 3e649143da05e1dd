// Whole runs: what changes speed or memory alone changes no bit of metrics, rollouts, weights or state.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <sstream>

#include "kernels/op_table.h"
#include "rl/tiny_run.h"

namespace rondo::rl {
namespace {

using Overrides = std::vector<std::string>;

class InvarianceTest : public ::testing::TestWithParam<const char*> {
 protected:
  // The outcome of a run of this dtype with `overrides`; its folder must not exist.
  Outcome run(const std::string& name, Overrides overrides) {
    overrides.push_back(std::string("model.dtype=") + GetParam());
    const Config config = tiny_.config(name, overrides);
    const auto summary = train(config);
    EXPECT_TRUE(summary) << name << ": " << summary.error().message();
    return summary ? outcome_of(config.trainer.run_dir) : Outcome{};
  }

  void expect_same(const Outcome& actual, const Outcome& expected, const std::string& what) {
    EXPECT_EQ(actual.metrics, expected.metrics) << what;
    EXPECT_TRUE(actual.rollouts == expected.rollouts) << what;
    EXPECT_TRUE(actual.model == expected.model) << what;
  }

  // KV memory of this many blocks.
  std::string pool(int blocks) const {
    const int kib = std::string(GetParam()) == "fp32" ? 16 : 8;
    return "engine.kv_memory=" + std::to_string(blocks * kib) + "KiB";
  }

  TinyRun tiny_;
};

TEST_P(InvarianceTest, ThreadsBudgetsTargetsAndCheckpointsChangeNoBit) {
  const Outcome expected = run("base", {});
  ASSERT_EQ(expected.metrics.size(), 5u);
  ASSERT_EQ(expected.rollouts.size(), 4u);
  std::vector<Overrides> variations = {{"trainer.threads=2"},
                                       {"trainer.threads=3"},
                                       {"engine.batch.max_running=1"},
                                       {"engine.batch.max_running=3", "engine.batch.max_batch_tokens=3"},
                                       {"engine.batch.max_batch_tokens=64"},
                                       {"engine.batch.max_running=5", "engine.batch.max_batch_tokens=17"},
                                       {"engine.kv_memory=16MiB"},
                                       {pool(3)},
                                       {"train.activation_memory=0"},
                                       {"train.activation_memory=3KiB"},
                                       {"train.activation_memory=1GiB"},
                                       {"trainer.save_freq=1"},
                                       {"trainer.save_freq=3", "trainer.max_ckpt_to_keep=1"}};
  for (const kernels::OpTable* target : kernels::available_targets())
    variations.push_back({std::string("trainer.kernel_target=") + target->name});
  for (std::size_t i = 0; i < variations.size(); ++i)
    expect_same(run("run" + std::to_string(i), variations[i]), expected, variations[i].back());
}

TEST_P(InvarianceTest, AnyMixtureOfThemChangesNoBit) {
  const Outcome expected = run("base", {});
  const auto targets = kernels::available_targets();
  std::mt19937 random(20);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int i = 0; i < 6; ++i) {
    const int running = pick(1, 12);
    const Overrides mixture = {
        "trainer.threads=" + std::to_string(pick(1, 2)),
        "engine.batch.max_running=" + std::to_string(running),
        "engine.batch.max_batch_tokens=" + std::to_string(running + pick(0, 100)),
        pool(pick(3, 20)),
        "train.activation_memory=" + std::to_string(pick(0, 20)) + "KiB",
        "trainer.save_freq=" + std::to_string(pick(0, 3)),
        std::string("trainer.kernel_target=") +
            targets[static_cast<std::size_t>(pick(0, static_cast<int>(targets.size()) - 1))]->name};
    std::string what;
    for (const std::string& setting : mixture) what += setting + " ";
    expect_same(run("mix" + std::to_string(i), mixture), expected, what);
  }
}

// Responses of up to three blocks more than their prompt, in pools where they do not fit together.
TEST_P(InvarianceTest, PreemptionChangesNoBit) {
  const Overrides longer = {"data.max_response_length=150", "trainer.total_steps=2", "trainer.test_freq=0"};
  const Outcome expected = run("base", longer);
  double preempted = 0;
  for (const int blocks : {5, 7, 9, 12}) {
    const std::string name = "pool" + std::to_string(blocks);
    Overrides overrides = longer;
    overrides.push_back(pool(blocks));
    overrides.push_back("rollout.policy=group_round_robin");  // it alone reserves nothing
    expect_same(run(name, overrides), expected, name);
    std::istringstream lines(files_below(tiny_.folder() / name).at("metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      preempted += metric_of(line, "rollout/preempted").value_or(0);
  }
  EXPECT_GT(preempted, 0);
}

// Chunks, instances, policies and the tiers of the KV, in pools where responses do not fit together.
TEST_P(InvarianceTest, RolloutSettingsChangeNoBit) {
  const Overrides longer = {"data.max_response_length=150", "trainer.total_steps=2", "trainer.test_freq=0"};
  const Outcome expected = run("base", longer);
  const std::vector<Overrides> variations = {
      {"rollout.chunk_tokens=20"},
      {"rollout.chunk_tokens=20", "rollout.instances=2", pool(6)},
      {"rollout.chunk_tokens=33", "rollout.instances=3", pool(5), "rollout.move_threshold=10",
       "trainer.threads=3"},
      {"rollout.chunk_tokens=20", "rollout.policy=least_attained", "rollout.instances=2", pool(5),
       "rollout.move_threshold=0", "rollout.host_kv_memory=40KiB", "rollout.disk_kv_memory=1MiB"},
      {"rollout.chunk_tokens=25", "rollout.policy=seer_plus", "rollout.instances=2", pool(7)},
      {"rollout.policy=fifo", "rollout.instances=4", pool(5)},
      {"rollout.spec.enabled=true", "rollout.spec.hysteresis=0"},
      {"rollout.spec.enabled=true", "rollout.spec.min_prob=0", "rollout.spec.multi_path_below=100",
       "rollout.spec.explore_period=2", "rollout.spec.fetch_period=1", "rollout.spec.append_batch=1",
       "rollout.chunk_tokens=20", "rollout.instances=2", pool(6)},
      {"rollout.policy=group_round_robin", "rollout.instances=2", pool(5)}};
  for (std::size_t i = 0; i < variations.size(); ++i) {
    Overrides overrides = longer;
    overrides.insert(overrides.end(), variations[i].begin(), variations[i].end());
    expect_same(run("run" + std::to_string(i), overrides), expected, variations[i].back());
  }
}

TEST_P(InvarianceTest, ObservationChangesNothingOfTheTraining) {
  const Outcome expected = run("base", {});
  const Outcome unwatched =
      run("unwatched", {"trainer.test_freq=0", "trainer.val_before_train=false", "rollout.val.n=3"});
  EXPECT_TRUE(unwatched.rollouts == expected.rollouts);
  EXPECT_TRUE(unwatched.model == expected.model);
  const Outcome unlogged = run("unlogged", {"trainer.log_rollouts=false"});
  EXPECT_TRUE(unlogged.rollouts.empty());
  EXPECT_EQ(unlogged.metrics, expected.metrics);
  EXPECT_TRUE(unlogged.model == expected.model);
}

TEST_P(InvarianceTest, SeedAndSettingsOfTheLossDoChangeIt) {
  const Outcome expected = run("base", {});
  EXPECT_FALSE(run("seed", {"trainer.seed=2"}).rollouts == expected.rollouts);
  EXPECT_FALSE(run("lr", {"actor.optim.lr=2e-3"}).model == expected.model);
  EXPECT_FALSE(run("agg", {"actor.loss_agg_mode=seq-mean-token-mean"}).model == expected.model);
}

INSTANTIATE_TEST_SUITE_P(DType, InvarianceTest, ::testing::Values("fp16", "fp32"),
                         [](const auto& dtype) { return std::string(dtype.param); });

// Settings of the loss, each with what must hold at any step and at the first.
class LossSettingsTest : public ::testing::TestWithParam<Overrides> {};

TEST_P(LossSettingsTest, GiveFiniteMetricsAndExactZerosAtFirst) {
  const TinyRun tiny;
  const Config config = tiny.config("run", GetParam());
  const auto summary = train(config);
  ASSERT_TRUE(summary) << summary.error().message();
  EXPECT_EQ(summary->last_step, 4);
  const bool one_update = config.actor.ppo_epochs == 1 && config.mini_batch() == config.data.train_batch_size;
  double updates = 0;
  for (const std::string& line : outcome_of(config.trainer.run_dir).metrics) {
    const auto step = static_cast<int>(metric_of(line, "step").value());
    if (step == 0) continue;
    for (const char* name : {"actor/loss", "actor/pg_loss", "actor/grad_norm", "actor/ppo_kl",
                             "actor/entropy", "critic/advantages/mean"}) {
      ASSERT_TRUE(metric_of(line, name)) << name << " of " << line;
      EXPECT_TRUE(std::isfinite(*metric_of(line, name))) << name << " at step " << step;
    }
    EXPECT_EQ(metric_of(line, "training/rollout_logprobs_diff_max"), 0.0);
    updates += metric_of(line, "actor/updates").value();
    if (one_update) {
      EXPECT_EQ(metric_of(line, "actor/ppo_kl"), 0.0);
      EXPECT_EQ(metric_of(line, "actor/pg_clipfrac"), 0.0);
    }
    if (config.actor.loss.kl_loss_coef == 0) {
      EXPECT_FALSE(metric_of(line, "actor/kl_loss"));
      continue;
    }
    const double kl = metric_of(line, "actor/kl_loss").value();
    if (one_update && step == 1) {
      EXPECT_EQ(kl, 0.0);
    }
    if (step > 1) {
      EXPECT_GT(kl, 0.0);
    }
    EXPECT_TRUE(std::isfinite(kl));
  }
  EXPECT_GT(updates, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, LossSettingsTest,
    ::testing::Values(Overrides{}, Overrides{"actor.loss_agg_mode=seq-mean-token-mean"},
                      Overrides{"actor.kl_loss_coef=0.01"},
                      Overrides{"actor.mini_batch_size=1", "actor.ppo_epochs=2"},
                      Overrides{"actor.mini_batch_size=1", "actor.ppo_epochs=2", "actor.kl_loss_coef=0.01",
                                "actor.loss_agg_mode=seq-mean-token-mean"},
                      Overrides{"actor.entropy_coeff=0.01", "rollout.temperature=0.7"},
                      Overrides{"algorithm.norm_adv_by_std=false", "train.unit_tokens=100"},
                      Overrides{"rollout.n=1", "model.dtype=fp32"}));

}  // namespace
}  // namespace rondo::rl
