#include "rl/policy_update.h"

#include <utility>

#include "base/fault_point.h"
#include "model/load.h"

namespace rondo::rl {

std::vector<std::vector<float>> advantages_of(const AlgorithmSection& config,
                                              std::span<const ScoredGroup> groups) {
  std::vector<std::vector<float>> out;
  for (const ScoredGroup& group : groups) {
    std::vector<double> scores;
    for (const ScoredResponse& sample : group.samples) scores.push_back(sample.reward.score);
    out.push_back(train::group_advantages(config.advantage, scores));
  }
  return out;
}

Result<std::unique_ptr<PolicyUpdate>> PolicyUpdate::create(Session& session, train::Trainer& trainer) {
  std::unique_ptr<PolicyUpdate> made(new PolicyUpdate(session, trainer));
  if (session.config.actor.loss.kl_loss_coef > 0) {
    RONDO_ASSIGN_CTX(made->reference_, load_reference(session), "loading the reference model");
  }
  return made;
}

Result<std::unique_ptr<PolicyUpdate::Reference>> PolicyUpdate::load_reference(const Session& session) {
  const ModelSection& config = session.config.model;
  const std::string& path = config.ref_path.empty() ? config.path : config.ref_path;
  RONDO_ASSIGN(const hf::ModelConfig model_config, hf::ModelConfig::read(path));
  RONDO_ASSIGN(const auto weights, hf::ModelWeightsReader::open(path));
  RONDO_ASSIGN(const model::ModelSpec spec, model::make_spec(model_config, config.dtype, 0));
  if (spec.vocab != session.model->spec().vocab)
    return fail(Code::kInvalidArgument,
                "{} has a vocabulary of {}, the policy one of {}; they must be the same", path, spec.vocab,
                session.model->spec().vocab);
  RONDO_ASSIGN(std::unique_ptr<model::Model> model, model::load_model(*weights, spec));
  return std::make_unique<Reference>(std::move(model), session.context);
}

Result<std::vector<train::TrainUnit>> PolicyUpdate::make_units(const ScoredGroup& group,
                                                               std::span<const float> advantages) {
  const train::LossConfig& loss = session_->config.actor.loss;
  train::TrainUnit whole{*group.prompt->tokens, {}};
  for (std::size_t i = 0; i < group.samples.size(); ++i) {
    const engine::Response& response = group.samples[i].response;
    whole.samples.push_back({.tokens = response.tokens,
                             .old_logprobs = response.logprobs,
                             .ref_logprobs = {},
                             .advantage = advantages[i],
                             .weight = train::token_weight(
                                 loss.loss_agg_mode, static_cast<std::int64_t>(response.tokens.size()))});
  }
  std::vector<train::TrainUnit> units = train::split_group(std::move(whole), trainer_->config().unit_tokens);
  if (reference_ == nullptr) return units;
  for (train::TrainUnit& unit : units) {
    RONDO_ASSIGN(auto logprobs,
                 reference_->pass.logprobs(unit, session_->config.rollout.sampling.params.temperature));
    for (std::size_t i = 0; i < unit.samples.size(); ++i)
      unit.samples[i].ref_logprobs = std::move(logprobs[i]);
  }
  return units;
}

Result<void> PolicyUpdate::mini_batch(std::span<const train::TrainUnit> units,
                                      const std::atomic<bool>& interrupted, UpdateSummary& summary,
                                      bool& any_gradient) {
  const train::LossConfig& loss = session_->config.actor.loss;
  const float temperature = session_->config.rollout.sampling.params.temperature;
  trainer_->zero_grad();
  any_gradient = false;
  for (const train::TrainUnit& unit : units) {
    if (summary.updates == 0 && interrupted.load(std::memory_order_relaxed))
      return fail(Code::kCancelled, "interrupted");
    ++summary.units;
    if (train::has_no_gradient(unit, loss)) {
      ++summary.skipped_units;
      continue;
    }
    RONDO_ASSIGN(const train::UnitReport report, trainer_->accumulate(unit, loss, temperature));
    fault::reach("unit_backward");
    any_gradient = true;
    summary.report.add(report);
    if (summary.updates == 0) summary.first_update.add(report);
  }
  return {};
}

Result<UpdateSummary> PolicyUpdate::run(std::span<const ScoredGroup> groups,
                                        std::span<const std::vector<float>> advantages, std::int64_t step,
                                        std::int64_t total_steps, const std::atomic<bool>& interrupted) {
  const ActorSection& actor = session_->config.actor;
  UpdateSummary summary;
  summary.lr = train::scheduled_lr(actor.optim.schedule, actor.optim.optimizer.lr, step, total_steps);
  std::vector<std::vector<train::TrainUnit>> units;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    RONDO_ASSIGN(units.emplace_back(), make_units(groups[g], advantages[g]));
  }
  const auto mini = static_cast<std::size_t>(session_->config.mini_batch());
  for (int epoch = 0; epoch < actor.ppo_epochs; ++epoch) {
    summary.report = {};
    summary.normalizer = 0;
    for (std::size_t first = 0; first < groups.size(); first += mini) {
      std::vector<train::TrainUnit> batch;
      std::int64_t tokens = 0, sequences = 0;
      for (std::size_t g = first; g < std::min(first + mini, groups.size()); ++g) {
        batch.insert(batch.end(), units[g].begin(), units[g].end());
        for (const ScoredResponse& sample : groups[g].samples)
          tokens += static_cast<std::int64_t>(sample.response.tokens.size());
        sequences += static_cast<std::int64_t>(groups[g].samples.size());
      }
      bool any_gradient = false;
      RONDO_TRY(mini_batch(batch, interrupted, summary, any_gradient));
      const double normalizer = train::normalizer(actor.loss.loss_agg_mode, tokens, sequences);
      summary.normalizer += normalizer;
      if (!any_gradient) continue;
      fault::reach("before_optimizer");
      RONDO_ASSIGN(const train::UpdateReport update,
                   trainer_->update(actor.optim.optimizer, summary.lr, normalizer));
      fault::reach("after_optimizer");
      summary.grad_norm = update.grad_norm;
      ++summary.updates;
    }
  }
  return summary;
}

}  // namespace rondo::rl
