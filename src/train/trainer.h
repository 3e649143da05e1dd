// Trainer: gradients of units in, new weights out; and its state as files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/status.h"
#include "config/byte_size.h"
#include "hf/model_weights.h"
#include "kernels/ops.h"
#include "model/weights.h"
#include "train/adamw.h"
#include "train/gradient_sum.h"
#include "train/loss.h"
#include "train/unit.h"
#include "train/unit_pass.h"
#include "train/workspace.h"

namespace rondo::train {

/// Trains one model in place. The model's weights change in update() and load_state() alone; whoever reads
/// them (an engine) must be idle then, and drops what it computed from them. One owner thread, which owns the
/// context's pool too.
///
/// Life of an optimiser step: zero_grad(); accumulate() each unit, in any order; update(). An error of
/// accumulate() poisons the step until zero_grad().
class Trainer final {
 public:
  struct Config {
    std::int64_t unit_tokens = 8192;
    config::ByteSize activation_memory{std::int64_t{256} << 20};

    template <class V>
    void visit(V& v) {
      v.field("unit_tokens", unit_tokens,
              "A group with more rows than this (the prompt counted once) is split by sample into several "
              "units. Part of "
              "the definition of the gradient.",
              {.min = 1});
      v.field("activation_memory", activation_memory,
              "Layer activations kept for the backward pass; those beyond are computed again. Changes speed "
              "alone.");
    }
  };

  /// Masters start as the exact values in the model folder.
  static Result<std::unique_ptr<Trainer>> create(const Config& config, model::Model& model,
                                                 const hf::ModelWeightsReader& masters,
                                                 const kernels::Context& context);

  void zero_grad();
  Result<UnitReport> accumulate(const TrainUnit& unit, const LossConfig& loss, float temperature);
  Result<UpdateReport> update(const OptimizerConfig& config, double lr, double normalizer);

  /// Log-probabilities of a unit's responses under the present weights.
  Result<std::vector<std::vector<float>>> logprobs(const TrainUnit& unit, float temperature);

  std::int64_t updates() const { return optimizer_.updates(); }
  const Config& config() const { return config_; }

  /// Writes masters, moments and the count of updates to `file` (safetensors), durable, with a checksum of
  /// them in its header.
  Result<void> save_state(const std::filesystem::path& file) const;
  /// Restores them bit for bit and stores the weights. kDataLoss or kInvalidArgument if the file is damaged
  /// or not this model's state; the trainer must then be thrown away. A file without a checksum, as earlier
  /// versions wrote them, is believed.
  Result<void> load_state(const std::filesystem::path& file);

  /// Bytes held, by purpose, for the memory ledger.
  struct Memory {
    std::size_t optimizer;    // masters and moments
    std::size_t gradient;     // fixed-point sum
    std::size_t activations;  // peak of the buffer pool
  };
  Memory memory() const;

 private:
  Trainer(const Config& config, model::Model& model, const kernels::Context& context);

  Config config_;
  model::Model* model_;
  Workspace workspace_;
  AdamW optimizer_;
  GradientSum gradient_;
  UnitPass pass_;
};

}  // namespace rondo::train
