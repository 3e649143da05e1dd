#include "cli/bench_step.h"

#include <atomic>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "cli/interrupt.h"
#include "data/prompt_sampler.h"
#include "rl/generation.h"
#include "rl/step_metrics.h"
#include "train/loss.h"

namespace rondo::cli {
namespace {

Result<std::vector<const rl::Prompt*>> prompts_of_step(const rl::Config& config, const rl::PromptSet& set,
                                                       std::int64_t step) {
  RONDO_ASSIGN(const auto sampler,
               data::PromptSampler::create({.batch_size = config.data.train_batch_size,
                                            .shuffle = config.data.shuffle,
                                            .seed = config.trainer.seed},
                                           static_cast<std::int64_t>(set.prompts.size())));
  std::vector<const rl::Prompt*> prompts;
  for (const std::int64_t index : sampler.batch(step - 1))
    prompts.push_back(&set.prompts[static_cast<std::size_t>(index)]);
  return prompts;
}

std::vector<train::TrainUnit> units_of(const rl::ScoredGroup& group, const rl::Config& config) {
  train::TrainUnit whole{*group.prompt->tokens, {}};
  for (const rl::ScoredResponse& sample : group.samples) {
    const auto length = static_cast<std::int64_t>(sample.response.tokens.size());
    whole.samples.push_back({.tokens = sample.response.tokens,
                             .old_logprobs = sample.response.logprobs,
                             .ref_logprobs = {},
                             .advantage = whole.samples.size() % 2 == 0 ? 1.0F : -1.0F,
                             .weight = train::token_weight(config.actor.loss.loss_agg_mode, length)});
  }
  return train::split_group(std::move(whole), config.train.unit_tokens);
}

void record_work(std::span<const rl::ScoredGroup> groups, StepMeasurement& m) {
  for (const rl::ScoredGroup& group : groups) {
    m.prompts.push_back(*group.prompt->tokens);
    auto& lengths = m.lengths.emplace_back();
    for (const rl::ScoredResponse& sample : group.samples)
      lengths.push_back(static_cast<std::int64_t>(sample.response.tokens.size()));
  }
}

std::int64_t total(const std::vector<std::vector<std::int64_t>>& lengths) {
  std::int64_t sum = 0;
  for (const auto& group : lengths)
    for (const std::int64_t length : group) sum += length;
  return sum;
}

}  // namespace

Result<StepMeasurement> measure_step(rl::Session& session, train::Trainer& trainer,
                                     const rl::PromptSet& prompts, std::int64_t step) {
  const SteadyClock clock;
  const rl::Config& config = session.config;
  RONDO_ASSIGN(const std::vector<const rl::Prompt*> batch, prompts_of_step(config, prompts, step));
  StepMeasurement m;
  rl::GenerationStats stats;
  const double begin = clock.now_s();
  RONDO_ASSIGN(const std::vector<rl::ScoredGroup> groups,
               rl::generate(session,
                            {.prompts = batch,
                             .sampling = &config.rollout.sampling,
                             .purpose = RngPurpose::kRollout,
                             .step = static_cast<std::uint32_t>(step)},
                            {}, catch_interrupts(), stats));
  m.rollout_s = clock.now_s() - begin;
  record_work(groups, m);
  const double rollout_end = clock.now_s();
  trainer.zero_grad();
  for (const rl::ScoredGroup& group : groups)
    for (const train::TrainUnit& unit : units_of(group, config))
      RONDO_TRY(trainer.accumulate(unit, config.actor.loss, config.rollout.sampling.params.temperature));
  m.gradient_s = clock.now_s() - rollout_end;
  const double gradient_end = clock.now_s();
  const auto& optim = config.actor.optim.optimizer;
  const auto sequences = static_cast<std::int64_t>(groups.size()) * config.rollout.sampling.n;
  const double normalizer = train::normalizer(config.actor.loss.loss_agg_mode, total(m.lengths), sequences);
  RONDO_TRY(trainer.update(optim, optim.lr, normalizer));
  session.inference->new_policy_version();
  m.optimizer_s = clock.now_s() - gradient_end;
  return m;
}

std::string step_as_json(const StepMeasurement& m, const rl::Session& session, const train::Trainer& trainer,
                         std::int64_t step) {
  const double seconds = m.rollout_s + m.gradient_s + m.optimizer_s;
  const std::int64_t tokens = total(m.lengths);
  const train::Trainer::Memory memory = trainer.memory();
  return nlohmann::json{{"bench", "step"},
                        {"step", step},
                        {"model", session.config.model.path},
                        {"dtype", kernels::dtype_name(session.model->spec().dtype)},
                        {"target", session.context.table->name},
                        {"threads", session.pool->num_threads()},
                        {"seconds", seconds},
                        {"rollout_s", m.rollout_s},
                        {"gradient_s", m.gradient_s},
                        {"optimizer_s", m.optimizer_s},
                        {"response_tokens", tokens},
                        {"tokens_per_second", static_cast<double>(tokens) / seconds},
                        {"peak_memory_gb", static_cast<double>(rl::peak_memory_bytes()) / 1e9},
                        {"memory_gb",
                         {{"optimizer", static_cast<double>(memory.optimizer) / 1e9},
                          {"gradient_sum", static_cast<double>(memory.gradient) / 1e9},
                          {"training_activations", static_cast<double>(memory.activations) / 1e9},
                          {"weights", static_cast<double>(session.model->weights().bytes()) / 1e9},
                          {"kv_pool", static_cast<double>(session.inference->engine().kv_bytes()) / 1e9},
                          {"engine_activations",
                           static_cast<double>(session.inference->engine().activation_bytes()) / 1e9}}},
                        {"prompts", m.prompts},
                        {"lengths", m.lengths}}
             .dump() +
         "\n";
}

}  // namespace rondo::cli
