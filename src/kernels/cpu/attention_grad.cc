#include "kernels/cpu/register.h"

namespace rondo::kernels::cpu {
void fill_attention_grad(OpTable&) {}
}  // namespace rondo::kernels::cpu
