// What this machine can do at best with a context's target and threads: the yardstick of benchmarks.
#pragma once

#include "kernels/ops.h"

namespace rondo::kernels {

/// Bytes per second that all threads together read from a buffer of `bytes` bytes, larger than any cache one
/// wants to exclude. Allocates the buffer; takes a few tenths of a second at the default size.
double measure_read_bandwidth(const Context& ctx, std::size_t bytes = std::size_t{512} << 20);

/// fp32 operations per second of all threads together in independent multiply-adds, the best of several
/// bursts. Takes about 0.1 s.
double measure_fma_peak(const Context& ctx);

}  // namespace rondo::kernels
