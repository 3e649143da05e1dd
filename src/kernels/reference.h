// The op table as plain scalar loops in std::fma: the meaning of op_table.h, for tests only.
#pragma once

#include "kernels/op_table.h"

namespace rondo::kernels::reference {

/// The whole table, named "reference". Slow, and written to be read.
const OpTable& table();

// Each family fills its own entries, in its own reference_*.cc.
void fill_matmul(OpTable& table);     // matmul, transpose, weight_grad, packing
void fill_attention(OpTable& table);  // attention, attention_grad, kv_store
void fill_pointwise(OpTable& table);  // rms_norm*, rope, swiglu*, add
void fill_softmax(OpTable& table);    // softmax_*, sampling_weights, exp, log, sigmoid
void fill_optimizer(OpTable& table);  // fixed_point_add, squared_norm, adamw

/// reduce16 of op_table.h: combines 16 lanes by the fixed tree; `lanes` is overwritten.
template <class T>
T combine_lanes(T (&lanes)[kReduceLanes]) {
  for (int width = kReduceLanes / 2; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  return lanes[0];
}

}  // namespace rondo::kernels::reference
