// Move threshold: from how many positions on KV is worth moving rather than computing again, as measured.
#pragma once

#include <cstdint>
#include <limits>

#include "base/status.h"
#include "engine/engine.h"
#include "model/spec.h"

namespace rondo::rl {

/// What KV costs an engine.
struct KvCosts {
  double compute_s = 0.0;  // to compute a position, among others of a prompt
  double move_s = 0.0;     // to take up to a block out of one pool and put it into another
};

/// Measures on an idle engine with one short prompt: about four times its prefill, a fraction of a second for
/// small models. Leaves the engine idle, its KV dropped.
Result<KvCosts> measure_kv_costs(engine::Engine& engine, const model::ModelSpec& spec);

/// A threshold that nothing exceeds.
inline constexpr std::int32_t kNeverMove = std::numeric_limits<std::int32_t>::max();

/// The most positions that are computed sooner than moved (Seer, arXiv 2511.14617, has 512 on GPUs). What
/// moves waits in no one's way: other requests run meanwhile, so waiting counts nothing here. kNeverMove
/// where even a whole block computes sooner.
std::int32_t move_threshold(const KvCosts& costs);

}  // namespace rondo::rl
