#include "kernels/reference.h"

namespace rondo::kernels::reference {

const OpTable& table() {
  static const OpTable instance = [] {
    OpTable built{};
    built.name = "reference";
    fill_matmul(built);
    fill_attention(built);
    fill_pointwise(built);
    fill_softmax(built);
    fill_optimizer(built);
    return built;
  }();
  return instance;
}

}  // namespace rondo::kernels::reference
