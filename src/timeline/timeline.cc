#include "timeline/timeline.h"

namespace rondo::timeline {
namespace {

// How many responses are the tail of `count`.
std::size_t tail_size(std::size_t count) {
  return (count + 9) / 10;
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

std::int64_t tail_begin(std::span<const std::int64_t> finish_times, std::int64_t begin_ns) {
  const std::size_t tail = tail_size(finish_times.size());
  return tail < finish_times.size() ? finish_times[finish_times.size() - tail - 1] : begin_ns;
}

std::int64_t tail_begin(const Timeline& timeline) {
  const std::size_t count = timeline.finishes.size();
  const std::size_t tail = tail_size(count);
  return tail < count ? timeline.finishes[count - tail - 1].time_ns : timeline.begin_ns;
}

}  // namespace rondo::timeline
