// Sweep: a comparison repeated for several values of settings.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sim/comparison.h"
#include "sim/workload.h"

namespace rondo::sim {

/// The comparison at one combination of values.
struct SweepPoint {
  std::string setting;  // "schedule.chunk_tokens=512 lengths.correlation=0.5"
  std::vector<VariantOutcomes> variants;
};

/// Runs the workload's variants at every combination of `axes` ("key=a,b,c", any setting but lists), all in
/// parallel. What a variant sets itself stays. kInvalidArgument for an axis that is none.
Result<std::vector<SweepPoint>> sweep(const Workload& workload, std::span<const std::string> axes,
                                      const CompareOptions& options);

/// A row per point and variant: throughput, its ratio to the point's first variant, total and tail.
std::string sweep_table(const std::vector<SweepPoint>& points);
/// Bars of throughput, a block per variant, for a terminal.
std::string sweep_bars(const std::vector<SweepPoint>& points);
/// A page with a line per variant and its range over seeds; needs nothing but a browser.
std::string sweep_page(std::string_view title, const std::vector<SweepPoint>& points);

}  // namespace rondo::sim
