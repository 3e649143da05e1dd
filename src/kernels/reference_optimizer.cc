#include "kernels/reference.h"

namespace rondo::kernels::reference {
void fill_optimizer(OpTable&) {}
}  // namespace rondo::kernels::reference
