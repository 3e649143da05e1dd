// Workspace: what the passes of a unit share and reuse; nothing in it outlives a unit but memory.
#pragma once

#include <cstddef>

#include "base/aligned_buffer.h"
#include "kernels/ops.h"
#include "kernels/types.h"
#include "model/weights.h"
#include "train/buffer_pool.h"

namespace rondo::train {

/// Context, buffers and transients of one trainer. One owner thread.
struct Workspace {
  kernels::Context context;
  BufferPool pool;
  // Transposed weights of the layer at hand, for input gradients.
  kernels::PackedMatrix qkv_transposed;
  kernels::PackedMatrix output_transposed;
  kernels::PackedMatrix gate_up_transposed;
  kernels::PackedMatrix down_transposed;
  AlignedBuffer<std::byte> attention_scratch;

  explicit Workspace(const kernels::Context& ctx) : context(ctx) {}
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// attention_scratch with room for `bytes`.
  std::span<std::byte> scratch(std::size_t bytes) {
    if (attention_scratch.size() < bytes) attention_scratch = AlignedBuffer<std::byte>(bytes);
    return attention_scratch.span();
  }
};

}  // namespace rondo::train
