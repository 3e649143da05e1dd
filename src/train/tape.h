// Tape: the trainer's Ops policy for model::decoder_layer. It runs the operations on a unit's rows, records
// them, and plays them backwards.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "model/decoder.h"
#include "model/weights.h"
#include "train/buffer_pool.h"
#include "train/gradient_sum.h"
#include "train/unit.h"
#include "train/workspace.h"

namespace rondo::train {

/// What a tape runs on. Nothing is owned.
struct TapeInputs {
  const model::Model* model;
  const UnitRows* rows;
  Workspace* workspace;
};

/// Runs decoder operations forward on the rows of a unit and keeps what backward needs, for a stretch of the
/// decoder (one layer, or the final norm). Values are matrices [unit rows, width], fp32. Replaying a stretch
/// on the same input gives the same bits, so a tape may be thrown away after the forward pass and made again
/// for the backward pass. One owner thread. An error leaves the tape unusable.
class Tape final {
 public:
  using Value = std::int32_t;

  /// kReplay: the stretch's result is known already, so the closing down projection is recorded but not
  /// computed again.
  enum class Mode : std::uint8_t { kForward, kReplay };

  Tape(const TapeInputs& inputs, Mode mode) : in_(inputs), mode_(mode) {}
  Tape(Tape&&) noexcept = default;
  Tape& operator=(Tape&&) noexcept = default;

  /// The stretch's input [rows, width]; borrowed until the tape is gone.
  Value input(const float* x, std::int64_t width);

  // Ops policy (model/decoder.h).
  Value rms_norm(Value x, model::ParamIndex weight);
  Value linear(Value x, model::ParamIndex weight);
  Value linear_swiglu(Value x, model::ParamIndex weight);
  Value linear_add(Value x, model::ParamIndex weight, model::ResidualProjection which, Value residual);
  Value attention(std::int32_t layer, Value qkv);

  const float* data(Value v) const;
  /// Takes a value's buffer out of the tape; it must be the result of the last operation.
  BufferPool::Handle take(Value v);

  /// Given d loss / d out [rows, width of out], adds the gradients of all parameters used to `sum` and
  /// returns d loss / d input.
  Result<BufferPool::Handle> backward(Value out, BufferPool::Handle dout, GradientSum& sum);

 private:
  enum class Op : std::uint8_t { kRmsNorm, kLinear, kLinearAdd, kRope, kAttention, kSwiglu };
  struct Node {
    BufferPool::Handle owned;
    const float* borrowed = nullptr;
    std::int64_t width = 0;
    BufferPool::Handle grad;
  };
  // Of a kLinear: it decides the order of the sum in the input gradient.
  enum class Projection : std::uint8_t { kQkv, kGateUp };
  struct Record {
    Op op;
    Value in;
    Value out;
    Value residual = -1;
    model::ParamIndex weight = -1;
    Projection projection = Projection::kQkv;
    model::ResidualProjection residual_projection = model::ResidualProjection::kOutput;
  };

  std::int64_t rows() const { return in_.rows->rows(); }
  const kernels::Context& ctx() const { return in_.workspace->context; }
  Node& node(Value v) { return nodes_[static_cast<std::size_t>(v)]; }
  Value add_node(std::int64_t width);
  float* mutable_data(Value v) { return node(v).owned.data(); }
  float* grad(Value v);
  kernels::KvView make_kv();
  void copy_prompt_tail(const kernels::KvView& kv);
  void rotate(float* qkv, bool inverse);

  Result<void> step_back(const Record& record, GradientSum& sum);
  Result<void> rms_norm_back(const Record& record, GradientSum& sum);
  Result<void> linear_back(const Record& record, GradientSum& sum);
  Result<void> linear_add_back(const Record& record, GradientSum& sum);
  void attention_back(const Record& record);
  void swiglu_back(const Record& record);

  TapeInputs in_;
  Mode mode_;
  std::vector<Node> nodes_;
  std::vector<Record> records_;
  BufferPool::Handle kv_storage_;  // K and V of one layer, as the kernels lay them out
  kernels::KvView kv_;
  BufferPool::Handle attention_stats_;
};

}  // namespace rondo::train
