// The root of the configuration tree: what a run is, from one TOML file and `section.key=value` overrides.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/prompt_row.h"
#include "engine/engine.h"
#include "kernels/sampling.h"
#include "kernels/types.h"
#include "reward/reward.h"
#include "rollout/dispatcher.h"
#include "rollout/draft_length.h"
#include "rollout/response_history.h"
#include "rollout/scheduler.h"
#include "train/adamw.h"
#include "train/loss.h"
#include "train/trainer.h"

namespace rondo::rl {

struct ModelSection {
  std::string path;
  kernels::DType dtype = kernels::DType::kF16;
  std::string ref_path;

  template <class V>
  void visit(V& v) {
    v.field("path", path, "Hugging Face model folder: config.json, safetensors, tokenizer.json.");
    v.field("dtype", dtype,
            "Storage of weights and KV cache, and of the written model. fp16 follows small updates far "
            "better than bf16.");
    v.field("ref_path", ref_path, "Reference model of the KL term; empty: model.path.");
  }
};

/// What becomes of a prompt of more than data.max_prompt_length tokens.
enum class OverlongPrompts : std::uint8_t { kSkip, kError };

constexpr auto enum_names(OverlongPrompts) {
  using enum OverlongPrompts;
  return std::array{std::pair{kSkip, "skip"}, std::pair{kError, "error"}};
}

struct DataSection {
  std::vector<std::string> train_files;
  std::vector<std::string> val_files;
  data::Config columns;
  std::string chat_template = "model";
  int train_batch_size = 8;
  int max_prompt_length = 1024;
  int max_response_length = 512;
  OverlongPrompts overlong_prompts = OverlongPrompts::kSkip;
  bool shuffle = true;

  template <class V>
  void visit(V& v) {
    v.field("train_files", train_files, "jsonl files of prompts to train on.");
    v.field("val_files", val_files, "jsonl files of held-out prompts; none: no evaluation.");
    columns.visit(v);
    v.field("chat_template", chat_template,
            "How messages become text: model (the folder's own), chatml or llama3.");
    v.field("train_batch_size", train_batch_size, "Prompts per step; responses are this times rollout.n.",
            {.min = 1});
    v.field("max_prompt_length", max_prompt_length, "Longest prompt, in tokens.", {.min = 1});
    v.field("max_response_length", max_response_length, "Longest response, in tokens.", {.min = 1});
    v.field("overlong_prompts", overlong_prompts, "Longer prompts are skipped (and counted), or an error.");
    v.field("shuffle", shuffle, "Shuffle the prompts anew in each epoch.");
  }
};

/// Sampling of one kind of generation.
struct SamplingSection {
  int n = 1;
  kernels::SamplingParams params;

  template <class V>
  void visit(V& v) {
    v.field("n", n, "Responses per prompt.", {.min = 1});
    v.field("temperature", params.temperature, "Logits are divided by this; 0 is greedy.", {.min = 0});
    v.field("top_k", params.top_k, "Keep the k most likely tokens; 0 keeps all.", {.min = -1});
    v.field("top_p", params.top_p, "Keep the fewest tokens with at least this share; 1 keeps all.",
            {.above = 0, .max = 1});
    v.field("min_p", params.min_p, "Keep tokens at least this share as likely as the most likely one.",
            {.min = 0, .max = 1});
  }
};

/// Speculative decoding with drafts from sibling responses.
struct SpecSection {
  bool enabled = false;
  rollout::DraftLengthPlanner::Config length;
  double min_prob = 0.1;
  int max_depth = 24;
  int append_batch = 16;
  int fetch_period = 16;
  std::string profile_folder;

  template <class V>
  void visit(V& v) {
    v.field("enabled", enabled, "Draft from sibling responses and verify; changes speed alone.");
    length.visit(v);
    v.field("min_prob", min_prob,
            "Drafts end where the estimated probability of acceptance falls below this.",
            {.min = 0, .max = 1});
    v.field("max_depth", max_depth, "Longest context, in tokens, that drafts are looked up by.",
            {.min = 1, .max = 255});
    v.field("append_batch", append_batch, "New tokens of a response at which other instances are told.",
            {.min = 1});
    v.field("fetch_period", fetch_period, "Steps after which an instance asks for other instances' tokens.",
            {.min = 1});
    v.field("profile_folder", profile_folder,
            "Where measured step times are kept; empty: rondo/ in the user's cache folder.");
  }
};

/// Which steps' rollouts are drawn.
enum class TimelineSteps : std::uint8_t { kNone, kLast, kEvery };

constexpr auto enum_names(TimelineSteps) {
  using enum TimelineSteps;
  return std::array{std::pair{kNone, "none"}, std::pair{kLast, "last"}, std::pair{kEvery, "every"}};
}

struct RolloutSection {
  SamplingSection sampling{.n = 8, .params = {}};
  int instances = 1;
  rollout::Scheduler::Config schedule{.move_threshold = rollout::Scheduler::Config::kMeasured};
  rollout::Dispatcher::Config dispatch;
  config::ByteSize host_kv_memory{std::int64_t{1} << 30};
  config::ByteSize disk_kv_memory{0};
  std::string disk_kv_folder;
  TimelineSteps timeline = TimelineSteps::kLast;
  std::string input_log;
  SpecSection spec;
  rollout::ResponseHistory::Config history;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  SamplingSection val{.n = 1, .params = {.temperature = 0.0F}};

  template <class V>
  void visit(V& v) {
    sampling.visit(v);
    v.field("stop", stop, "Strings that end a response, beside the model's end tokens.");
    v.field("ignore_eos", ignore_eos, "Go on behind the model's end tokens (for measurements).");
    v.field(
        "instances", instances,
        "Inference engines in this process. They share the weights and divide trainer.threads; each has a KV "
        "pool of engine.kv_memory.",
        {.min = 1, .max = 1024});
    schedule.visit(v);
    dispatch.visit(v);
    v.field("host_kv_memory", host_kv_memory,
            "Memory for the KV of unfinished responses, and of prompts still to be sampled, that left an "
            "instance to make room.");
    v.field("disk_kv_memory", disk_kv_memory,
            "The same on disk, for responses that host_kv_memory does not hold.");
    v.field("disk_kv_folder", disk_kv_folder, "Where; empty: trainer.run_dir/kv.");
    v.field("timeline", timeline,
            "Draw what ran when on each instance, as a page for any browser (html) and as a trace for "
            "ui.perfetto.dev (json). last: of the newest step, in trainer.run_dir/timeline/last.*; every: of "
            "each "
            "step, in step_N.*; none. Large rollouts are drawn in part, so files and memory stay bounded.");
    v.field(
        "input_log", input_log,
        "File that gets every input and decision of the scheduler, a line each, to be replayed; begun anew "
        "with the process. Empty: none.");
    v.section("spec", spec, "Speculative decoding.");
    v.section("history", history, "What earlier epochs answered to the same prompts.");
    v.section("val", val, "Sampling of the evaluation.");
  }
};

enum class AdvEstimator : std::uint8_t { kGrpo };
constexpr auto enum_names(AdvEstimator) {
  return std::array{std::pair{AdvEstimator::kGrpo, "grpo"}};
}

struct AlgorithmSection {
  AdvEstimator adv_estimator = AdvEstimator::kGrpo;
  train::AdvantageConfig advantage;

  template <class V>
  void visit(V& v) {
    v.field("adv_estimator", adv_estimator, "How rewards become advantages.");
    advantage.visit(v);
  }
};

struct OptimSection {
  train::OptimizerConfig optimizer;
  train::LrScheduleConfig schedule;

  template <class V>
  void visit(V& v) {
    optimizer.visit(v);
    schedule.visit(v);
  }
};

struct ActorSection {
  int mini_batch_size = 0;
  int ppo_epochs = 1;
  train::LossConfig loss;
  OptimSection optim;

  template <class V>
  void visit(V& v) {
    v.field("mini_batch_size", mini_batch_size,
            "Prompts per optimiser update; 0: the whole batch. Must divide data.train_batch_size.",
            {.min = 0});
    v.field("ppo_epochs", ppo_epochs, "Passes over a step's responses.", {.min = 1});
    loss.visit(v);
    v.section("optim", optim, "AdamW and its learning rate.");
  }
};

/// What happens where the run folder holds a run already.
enum class ResumeMode : std::uint8_t { kAuto, kDisable };

constexpr auto enum_names(ResumeMode) {
  using enum ResumeMode;
  return std::array{std::pair{kAuto, "auto"}, std::pair{kDisable, "disable"}};
}

struct TrainerSection {
  std::string run_dir = "runs/default";
  std::int64_t total_steps = 0;
  int total_epochs = 1;
  int test_freq = 0;
  bool val_before_train = true;
  int save_freq = 0;
  int max_ckpt_to_keep = 2;
  ResumeMode resume_mode = ResumeMode::kAuto;
  bool log_rollouts = true;
  std::uint32_t seed = 1;
  int threads = 0;
  std::string kernel_target = "auto";

  template <class V>
  void visit(V& v) {
    v.field("run_dir", run_dir, "Folder of the run: config, metrics, rollouts, checkpoints.");
    v.field("total_steps", total_steps, "Steps to train; 0: as many as total_epochs give.", {.min = 0});
    v.field("total_epochs", total_epochs, "Passes over the prompts, where total_steps is 0.", {.min = 1});
    v.field("test_freq", test_freq, "Evaluate every so many steps; 0: only before and after.", {.min = 0});
    v.field("val_before_train", val_before_train, "Evaluate before the first step.");
    v.field("save_freq", save_freq, "Checkpoint every so many steps; 0: only at the end.", {.min = 0});
    v.field("max_ckpt_to_keep", max_ckpt_to_keep,
            "Newest checkpoints that stay; 0: all. The disk must have room for them and for the one being "
            "written when training begins.",
            {.min = 0});
    v.field("resume_mode", resume_mode,
            "auto: go on from the newest checkpoint in run_dir; disable: run_dir must not hold a run.");
    v.field("log_rollouts", log_rollouts, "Write every response to run_dir/rollouts.");
    v.field("seed", seed, "Key of every random number of the run.");
    v.field("threads", threads, "Threads that compute; 0: one per core. Changes speed alone.",
            {.min = 0, .max = 1024});
    v.field("kernel_target", kernel_target, "auto, avx512, avx2 or portable. Changes speed alone.");
  }
};

/// Everything that a run depends on. Plain values.
struct Config {
  ModelSection model;
  DataSection data;
  RolloutSection rollout;
  engine::Engine::Config engine;
  AlgorithmSection algorithm;
  ActorSection actor;
  train::Trainer::Config train;
  reward::Config reward;
  TrainerSection trainer;

  template <class V>
  void visit(V& v) {
    v.section("model", model, "The policy.");
    v.section("data", data, "Prompts.");
    v.section("rollout", rollout, "Sampling of responses.");
    v.section("engine", engine, "The inference engine: speed and memory, never results.");
    v.section("algorithm", algorithm, "Advantages.");
    v.section("actor", actor, "Policy loss and optimiser.");
    v.section("train", train, "How gradients are computed.");
    v.section("reward", reward, "Scores of responses.");
    v.section("trainer", trainer, "The run.");
  }

  /// What no single field can say, for any command.
  Result<void> validate() const;
  /// Whether rollout.policy is one for other commands than `bench rollout`.
  Result<void> validate_policy() const;
  /// What training needs on top.
  Result<void> validate_for_training() const;
  /// Longest sequence that the run can produce, in tokens.
  std::int64_t max_sequence() const {
    return std::int64_t{data.max_prompt_length} + data.max_response_length;
  }
  /// Prompts per optimiser update.
  int mini_batch() const { return actor.mini_batch_size > 0 ? actor.mini_batch_size : data.train_batch_size; }
};

/// Reads `file` (empty: defaults alone) and applies overrides in order; checks each field alone.
Result<Config> read_config(const std::string& file, const std::vector<std::string>& overrides);
/// The same, and checks that the fields fit together.
Result<Config> load_config(const std::string& file, const std::vector<std::string>& overrides);
/// Settings that results depend on and that differ, as "key: old -> new"; but for `left_out`, keys whose
/// value before is not known.
std::vector<std::string> changed_results(const Config& before, const Config& after,
                                         const std::vector<std::string>& left_out = {});

/// What a run's earlier config.toml says otherwise.
struct ConfigChanges {
  std::vector<std::string> results;       // as changed_results() says them
  std::vector<std::string> incomparable;  // why an entry is none of the settings, or has no value of one
};

/// Compares `file`, which another version may have written, with `config`. An error is a file that cannot be
/// read or is not TOML.
Result<ConfigChanges> changes_since(const std::filesystem::path& file, const Config& config);
/// The tree as TOML that loads back to the same values.
std::string config_toml(const Config& config);
/// The same with docs, types, ranges and defaults.
std::string annotated_config_toml(const Config& config);
/// The reference page of all keys.
std::string config_markdown();

}  // namespace rondo::rl
