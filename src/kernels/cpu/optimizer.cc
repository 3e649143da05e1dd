#include "kernels/cpu/register.h"

namespace rondo::kernels::cpu {
void fill_optimizer(OpTable&) {}
}  // namespace rondo::kernels::cpu
