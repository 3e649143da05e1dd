// Head: the output projection over a unit's predicted tokens, in row chunks, so that logits over the
// vocabulary never exist for more than kHeadRows rows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "model/weights.h"
#include "train/gradient_sum.h"
#include "train/unit.h"
#include "train/workspace.h"

namespace rondo::train {

/// Head rows whose logits are held at once: enough that the projection, which is read for each chunk, is not
/// what the time goes into.
inline constexpr std::int64_t kHeadRows = 256;

/// What the head says of one target.
struct TargetScore {
  float logprob;  // log-softmax(logits / T) at the target
  float entropy;  // of that distribution, in nats
};

/// Derivatives of the loss that a caller wants sent back from one target.
struct TargetGrad {
  float dlogprob;
  float dentropy;
};

/// Log-probabilities, entropies and their gradients over one model's output projection. Keeps the transposed
/// projection until the weights change. One owner thread.
class Head final {
 public:
  Head(const model::Model& model, Workspace& workspace) : model_(&model), workspace_(&workspace) {}

  /// Scores all targets of a unit. `hidden` is [unit rows, hidden], after the final norm; `scores` [targets].
  Result<void> score(const UnitRows& rows, const float* hidden, float temperature,
                     std::span<TargetScore> scores);

  /// The same, and `loss(target index, score)` says what goes back: writes d loss / d hidden (zero where the
  /// head reads no row) and adds the projection's gradient to `sum`. The chunks continue one chain.
  using Loss = std::function<TargetGrad(std::size_t, const TargetScore&)>;
  Result<void> score_and_grad(const UnitRows& rows, const float* hidden, float temperature,
                              std::span<TargetScore> scores, const Loss& loss, float* dhidden,
                              GradientSum& sum);

  /// To be called whenever the weights have changed.
  void weights_changed() { transposed_valid_ = false; }

 private:
  struct Chunk;
  Result<void> forward(Chunk& chunk, const float* hidden, float temperature, std::span<TargetScore> scores);
  void logit_grads(Chunk& chunk, float temperature, std::span<const TargetScore> scores, const Loss& loss);
  void input_grad(const Chunk& chunk, float* dhidden);
  const kernels::PackedMatrix& transposed();

  const model::Model* model_;
  Workspace* workspace_;
  kernels::PackedMatrix transposed_;
  bool transposed_valid_ = false;
};

}  // namespace rondo::train
