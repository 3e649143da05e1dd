// Forward: the engine's Ops policy. It runs the decoder on the rows of a step, in place, on buffers made
// once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/id.h"
#include "engine/kv_storage.h"
#include "kernels/ops.h"
#include "model/decoder.h"
#include "model/weights.h"

namespace rondo::engine {

/// The rows of one forward pass: token and position of each, and the spans that say whose they are.
struct Rows {
  std::span<const Token> tokens;
  std::span<const std::int32_t> positions;
  std::span<const kernels::SequenceSpan> spans;
  std::span<const kernels::SequenceSpan> extra_stores = {};  // rows whose K and V go to a second place, too
};

/// Runs a model forward over paged KV. Borrows model and KV; owns the activations of up to `max_rows` rows
/// and the logits of kLogitRows. Allocates nothing after construction. One owner thread.
class Forward final {
 public:
  /// Logit rows computed at once.
  static constexpr std::int64_t kLogitRows = 64;

  Forward(const model::Model& model, KvStorage& kv, const kernels::Context& context, std::int64_t max_rows);

  /// Computes the hidden state of every row, and stores its K and V.
  void run(const Rows& rows);
  /// Logits [rows.size(), vocab] of up to kLogitRows rows of the last run(). Valid until the next call.
  const float* logits(std::span<const std::int32_t> rows);

  /// Bytes of activations.
  std::size_t bytes() const;

  // Ops policy (model/decoder.h).
  struct Value {
    float* data;
    std::int64_t width;
  };
  Value rms_norm(Value x, model::ParamIndex weight);
  Value linear(Value x, model::ParamIndex weight);
  Value linear_swiglu(Value x, model::ParamIndex weight);
  Value linear_add(Value x, model::ParamIndex weight, model::ResidualProjection which, Value residual);
  Value attention(std::int32_t layer, Value qkv);

 private:
  std::int64_t num_rows() const { return static_cast<std::int64_t>(rows_.tokens.size()); }
  void embed();
  void rotate_and_store(const kernels::KvView& view, Value qkv);

  const model::Model* model_;
  KvStorage* kv_;
  kernels::Context context_;
  std::int64_t max_rows_;
  Rows rows_;
  AlignedBuffer<float> x_;          // [max_rows, hidden], the residual stream
  AlignedBuffer<float> normed_;     // [max_rows, hidden]
  AlignedBuffer<float> qkv_;        // [max_rows, qkv width]
  AlignedBuffer<float> attended_;   // [max_rows, q width]
  AlignedBuffer<float> gate_up_;    // [max_rows, 2 * intermediate]
  AlignedBuffer<float> activated_;  // [max_rows, intermediate]
  AlignedBuffer<float> gathered_;   // [kLogitRows, hidden]
  AlignedBuffer<float> logits_;     // [kLogitRows, vocab]
};

}  // namespace rondo::engine
