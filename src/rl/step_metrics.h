// The metrics of a training step, under verl's names.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "metrics/step_record.h"
#include "rl/generation.h"
#include "rl/policy_update.h"

namespace rondo::rl {

/// Scores, advantages, lengths, groups without variance, entropy of the sampled distributions.
void add_rollout_metrics(metrics::StepRecord& record, std::span<const ScoredGroup> groups,
                         std::span<const std::vector<float>> advantages);

/// Loss, clipping, KL, gradient norm, learning rate, and how far the trainer's log-probabilities are from the
/// engine's.
void add_update_metrics(metrics::StepRecord& record, const UpdateSummary& summary,
                        const train::LossConfig& loss);

/// Throughput, memory and preemptions: measured, not part of what a run must reproduce.
void add_performance_metrics(metrics::StepRecord& record, std::span<const ScoredGroup> groups,
                             const GenerationStats& stats, double step_seconds, double gen_seconds);

/// Peak resident memory of this process, in bytes.
std::int64_t peak_memory_bytes();

}  // namespace rondo::rl
