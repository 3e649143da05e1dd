// matmul, transpose and weight_grad of every target against the plain loops.
#include "kernels/op_table_test.h"

namespace rondo::kernels {
namespace {

TEST(OpTableTest, PortableIsTheLastTarget) {
  EXPECT_STREQ(available_targets().back()->name, "portable");
}

}  // namespace
}  // namespace rondo::kernels
