#include "timeline/timeline.h"

namespace rondo::timeline {
namespace {

// `time` gives the finish time of an item.
template <class T, class Time>
std::int64_t tail_begin_of(std::span<const T> finishes, std::int64_t begin_ns, Time time) {
  const std::size_t tail = tail_size(finishes.size());
  return tail < finishes.size() ? time(finishes[finishes.size() - tail - 1]) : begin_ns;
}

}  // namespace

const char* kv_origin_name(KvOrigin origin) {
  switch (origin) {
    case KvOrigin::kResident:
      return "resident";
    case KvOrigin::kMoved:
      return "moved";
    case KvOrigin::kRecomputed:
      return "recomputed";
  }
  return "";
}

std::size_t tail_size(std::size_t num_responses) {
  return (num_responses + 9) / 10;
}

std::int64_t tail_begin(std::span<const std::int64_t> finish_times, std::int64_t begin_ns) {
  return tail_begin_of(finish_times, begin_ns, [](std::int64_t time_ns) { return time_ns; });
}

std::int64_t tail_begin(const Timeline& timeline) {
  return tail_begin_of(std::span(timeline.finishes), timeline.begin_ns,
                       [](const Finish& finish) { return finish.time_ns; });
}

}  // namespace rondo::timeline
