#include "timeline/chrome_trace.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "metrics/trace_writer.h"
#include "timeline/rows.h"

namespace rondo::timeline {
namespace {

using metrics::TraceWriter;
using Lanes = std::vector<std::vector<TraceWriter::Lane>>;  // by instance and row

std::string instance_name(std::int32_t instance) {
  return fmt::format("instance {}", instance);
}

// At least one row each, so that an instance that ran nothing is seen.
Lanes add_lanes(TraceWriter& trace, const Timeline& timeline, const Rows& rows) {
  Lanes lanes(static_cast<std::size_t>(timeline.num_instances));
  for (std::int32_t i = 0; i < timeline.num_instances; ++i) {
    auto& own = lanes[static_cast<std::size_t>(i)];
    for (int row = 0; row < std::max(1, rows.count[static_cast<std::size_t>(i)]); ++row)
      own.push_back(trace.add_lane(instance_name(i), fmt::format("row {}", row)));
  }
  return lanes;
}

void write_chunk(TraceWriter& trace, TraceWriter::Lane lane, const Chunk& chunk) {
  trace.complete(lane, fmt::format("group {} request {}", chunk.group, chunk.request), chunk.begin_ns,
                 chunk.end_ns,
                 {{"from_token", std::int64_t{chunk.begin_tokens}},
                  {"to_token", std::int64_t{chunk.end_tokens}},
                  {"kv", std::string_view(kv_origin_name(chunk.origin))},
                  {"migrated", std::int64_t{chunk.migrated}},
                  {"finished", std::int64_t{chunk.finished}}});
}

void write_counters(TraceWriter& trace, const Timeline& timeline, const Lanes& lanes) {
  for (const Counter& counter : timeline.counters) {
    const TraceWriter::Lane lane = lanes[static_cast<std::size_t>(counter.instance.value())].front();
    for (std::size_t i = 0; i < counter.means.size(); ++i) {
      const std::int64_t time = timeline.begin_ns + static_cast<std::int64_t>(i) * counter.bin_ns;
      trace.counter(lane, counter.name, time, counter.means[i]);
    }
  }
}

}  // namespace

Result<void> write_chrome_trace(const std::filesystem::path& path, const Timeline& timeline) {
  RONDO_ASSIGN(const auto trace, TraceWriter::create(path, timeline.begin_ns));
  const Rows rows = assign_rows(timeline.chunks, timeline.num_instances);
  const Lanes lanes = add_lanes(*trace, timeline, rows);
  struct Left {
    TraceWriter::Lane lane;
    std::int64_t time_ns;
  };
  std::unordered_map<RequestId, Left> last;  // where each request was last seen
  for (std::size_t i = 0; i < timeline.chunks.size(); ++i) {
    const Chunk& chunk = timeline.chunks[i];
    const auto instance = static_cast<std::size_t>(chunk.instance.value());
    const TraceWriter::Lane lane = lanes[instance][static_cast<std::size_t>(rows.of_chunk[i])];
    write_chunk(*trace, lane, chunk);
    const auto before = last.find(chunk.request);
    if (chunk.migrated && before != last.end())
      trace->flow("migration", before->second.lane, before->second.time_ns, lane, chunk.begin_ns);
    // Inside of the box, for an arrow belongs to the box that its time is in.
    last[chunk.request] = {lane, std::max(chunk.begin_ns, chunk.end_ns - 1)};
  }
  write_counters(*trace, timeline, lanes);
  return trace->finish();
}

}  // namespace rondo::timeline
