// How the families of CPU kernels reach the op table: each fills its own entries for Highway's chosen target.
#pragma once

#include "kernels/op_table.h"

namespace rondo::kernels::cpu {

// Each writes its entries for the target that Highway currently dispatches to.
void fill_matmul(OpTable& table);
void fill_transpose(OpTable& table);
void fill_weight_grad(OpTable& table);
void fill_pack(OpTable& table);
void fill_attention(OpTable& table);  // attention, kv_store
void fill_attention_grad(OpTable& table);
void fill_pointwise(OpTable& table);  // rms_norm*, rope, swiglu*, add
void fill_softmax(OpTable& table);    // softmax_stats, softmax_grad, sampling_weights, exp, log, sigmoid
void fill_limits(OpTable& table);     // read_all, fma_burst
void fill_optimizer(OpTable& table);  // fixed_point_add, squared_norm, adamw

}  // namespace rondo::kernels::cpu
