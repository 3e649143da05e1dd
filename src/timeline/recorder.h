// Recorder: collects a timeline while a rollout runs, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "timeline/step_series.h"
#include "timeline/timeline.h"

namespace rondo::timeline {

/// Takes chunks as they end and quantities as they change.
///
/// Reads no clock. When there are more chunks than it may keep, it lets those of every second group go, and
/// does so again when need be; counts, finishes and quantities stay whole. Memory: Limits::max_chunks * 56
/// bytes, 32 a response, Limits::bins * 8 for each quantity of each instance. One owner thread.
class Recorder final {
 public:
  struct Limits {
    std::int64_t max_chunks = std::int64_t{1} << 18;
    std::size_t bins = 512;  // at least 2
  };
  using CounterId = std::size_t;

  Recorder(std::string name, std::int64_t begin_ns);
  Recorder(std::string name, std::int64_t begin_ns, const Limits& limits);

  /// A chunk is over; one that is `finished` ends its response. In the order of their ends, roughly: finish()
  /// sorts.
  void chunk(const Chunk& chunk);

  /// A quantity that instances have, "running requests".
  CounterId add_counter(std::string_view name);
  /// It is `value` on this instance from now on; 0 until the first call. O(1) but for bins passed.
  void set(CounterId counter, InstanceId instance, std::int64_t time_ns, double value);

  /// The whole, which ends at `end_ns` or with its last chunk. The recorder is spent.
  Timeline finish(std::int64_t end_ns);

 private:
  struct Quantity {
    std::string name;
    std::vector<StepSeries> series;  // by instance
  };
  bool keeps(GroupId group) const;
  void saw(InstanceId instance);

  Limits limits_;
  Timeline timeline_;
  std::vector<Quantity> quantities_;
};

}  // namespace rondo::timeline
