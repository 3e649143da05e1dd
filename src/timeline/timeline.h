// Timeline: what a rollout did and when, as plain data that the writers of this module draw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/id.h"

namespace rondo::timeline {

/// How the KV that a chunk starts from got to its instance.
enum class KvOrigin : std::uint8_t {
  kResident,   // it lay there, or there was none yet
  kMoved,      // it came from another instance, host memory or disk
  kRecomputed  // it was computed again
};
/// "resident", "moved", "recomputed".
const char* kv_origin_name(KvOrigin origin);

/// One request's stay on one instance. Under an undivided schedule a response is one chunk.
struct Chunk {
  RequestId request;
  GroupId group;
  InstanceId instance;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int32_t begin_tokens = 0;  // of the response
  std::int32_t end_tokens = 0;
  KvOrigin origin = KvOrigin::kResident;
  bool migrated = false;  // the request's last chunk ran on another instance
  bool finished = false;  // the response ends with it
};

/// The end of a response.
struct Finish {
  RequestId request;
  GroupId group;
  InstanceId instance;
  std::int64_t time_ns = 0;
  std::int32_t tokens = 0;
};

/// A quantity of one instance over time: its mean in equal bins from Timeline::begin_ns on. The last bin ends
/// with the timeline.
struct Counter {
  std::string name;
  InstanceId instance;
  std::int64_t bin_ns = 1;
  std::vector<double> means;
};

/// One rollout. Times are of one clock; real or simulated does not matter here.
struct Timeline {
  std::string name;  // of the policy, or of the step
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int32_t num_instances = 0;
  std::int64_t num_chunks = 0;  // of the rollout, whether kept or not
  std::int64_t num_migrations = 0;
  std::int64_t one_group_in = 1;       // `chunks` has those of so many groups, and the rest were let go
  std::vector<Chunk> chunks = {};      // by end
  std::vector<Finish> finishes = {};   // all of them, by time
  std::vector<Counter> counters = {};  // of each name one for each instance that had it
};

/// How many responses of so many are the tail: a tenth, rounded up.
std::size_t tail_size(std::size_t num_responses);
/// When only the last tenth of the responses was left (at least one): the finish time of the last response
/// before those; `begin_ns` if there is none before. Times are sorted.
std::int64_t tail_begin(std::span<const std::int64_t> finish_times, std::int64_t begin_ns);
/// Of a timeline.
std::int64_t tail_begin(const Timeline& timeline);

}  // namespace rondo::timeline
