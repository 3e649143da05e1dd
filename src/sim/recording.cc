#include "sim/recording.h"

#include <utility>

namespace rondo::sim {

Recording::Recording(std::string name, bool logs)
    : logs_inputs(logs),
      timeline(std::move(name), 0),
      running(timeline.add_counter("running responses")),
      queued(timeline.add_counter("queued responses")),
      kv_percent(timeline.add_counter("KV in use, %")) {}

void Recording::set(InstanceId instance, double time_s, double now_running, double now_queued,
                    double percent) {
  const std::int64_t time = as_ns(time_s);
  timeline.set(running, instance, time, now_running);
  timeline.set(queued, instance, time, now_queued);
  timeline.set(kv_percent, instance, time, percent);
}

}  // namespace rondo::sim
