// PolicyUpdate: from a step's scored groups to new weights: advantages, units, gradient, optimiser.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "rl/config.h"
#include "rl/generation.h"
#include "rl/session.h"
#include "train/trainer.h"
#include "train/unit_pass.h"
#include "train/workspace.h"

namespace rondo::rl {

/// What one step's update did. Sums run over units in issue order, so they do not depend on the order of
/// training.
struct UpdateSummary {
  train::UnitReport report;  // of the last pass over the responses
  train::UnitReport
      first_update;       // of the units before the first optimiser update: there the ratio is exactly 1
  double normalizer = 1;  // sum of the mini-batches' normalisers, for report
  double grad_norm = 0;   // of the last update
  double lr = 0;
  std::int64_t updates = 0;  // optimiser calls; 0 if no group had a gradient
  std::int64_t units = 0;
  std::int64_t skipped_units = 0;  // loss identically zero
};

/// Advantage of every sample of every group.
std::vector<std::vector<float>> advantages_of(const AlgorithmSection& config,
                                              std::span<const ScoredGroup> groups);

/// Trains the session's model on scored groups. Owns the reference model where the loss has a KL term;
/// borrows session and trainer. One owner thread.
class PolicyUpdate final {
 public:
  /// Loads the reference model if config.actor.kl_loss_coef > 0, and not otherwise.
  static Result<std::unique_ptr<PolicyUpdate>> create(Session& session, train::Trainer& trainer);

  /// Runs all updates of global step `step` of `total_steps`. kCancelled if `interrupted` before the first
  /// optimiser call: weights and moments are then as before. After it the step is brought to its end.
  Result<UpdateSummary> run(std::span<const ScoredGroup> groups,
                            std::span<const std::vector<float>> advantages, std::int64_t step,
                            std::int64_t total_steps, const std::atomic<bool>& interrupted);

 private:
  struct Reference {
    std::unique_ptr<model::Model> model;
    train::Workspace workspace;
    train::UnitPass pass;
    Reference(std::unique_ptr<model::Model> m, const kernels::Context& context)
        : model(std::move(m)), workspace(context), pass(*model, workspace, 0) {}
  };

  PolicyUpdate(Session& session, train::Trainer& trainer) : session_(&session), trainer_(&trainer) {}
  static Result<std::unique_ptr<Reference>> load_reference(const Session& session);
  Result<std::vector<train::TrainUnit>> make_units(const ScoredGroup& group,
                                                   std::span<const float> advantages);
  Result<void> mini_batch(std::span<const train::TrainUnit> units, const std::atomic<bool>& interrupted,
                          UpdateSummary& summary, bool& any_gradient);

  Session* session_;
  train::Trainer* trainer_;
  std::unique_ptr<Reference> reference_;
};

}  // namespace rondo::rl
