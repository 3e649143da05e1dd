// Rows: where chunks that run at the same time on an instance are drawn, one above the other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "timeline/timeline.h"

namespace rondo::timeline {

/// Rows of chunks, within their instances.
struct Rows {
  std::vector<std::int32_t> of_chunk;  // by index in `chunks`
  std::vector<std::int32_t> count;     // by instance: rows that it needs
};

/// Chunks of a row do not overlap, and there are as few rows as that allows. A request that comes back to its
/// instance takes the row it had, if that is free. O(n log n).
Rows assign_rows(std::span<const Chunk> chunks, std::int32_t num_instances);

}  // namespace rondo::timeline
