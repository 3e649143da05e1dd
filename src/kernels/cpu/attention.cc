#include "kernels/cpu/register.h"

namespace rondo::kernels::cpu {
void fill_attention(OpTable&) {}
}  // namespace rondo::kernels::cpu
