#include "kernels/reference.h"

namespace rondo::kernels::reference {
void fill_softmax(OpTable&) {}
}  // namespace rondo::kernels::reference
