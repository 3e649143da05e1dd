#include "kernels/reference.h"

namespace rondo::kernels::reference {
void fill_attention(OpTable&) {}
}  // namespace rondo::kernels::reference
