// EventHash: a fingerprint of what happened in a simulation and when.
#pragma once

#include <bit>
#include <cstdint>

namespace rondo::sim {

enum class Mark : std::uint64_t { kAssigned = 1, kChunkDone, kFinished, kMoved, kArrived, kPreempted };

/// What the hash takes in of an event; what `request`, `a` and `b` are, depends on the mark.
struct MarkedEvent {
  Mark mark = Mark::kAssigned;
  std::int64_t request = 0;
  std::int64_t a = 0;
  std::int64_t b = 0;
};

/// Equal for equal sequences of events with equal times, bit for bit; order matters.
class EventHash final {
 public:
  void add(double time, const MarkedEvent& event) {
    for (const std::uint64_t word :
         {static_cast<std::uint64_t>(event.mark), static_cast<std::uint64_t>(event.request),
          static_cast<std::uint64_t>(event.a), static_cast<std::uint64_t>(event.b),
          std::bit_cast<std::uint64_t>(time)}) {
      value_ = (std::rotl(value_, 23) ^ word) * 0x9E3779B97F4A7C15ULL;  // 2^64 over the golden ratio
    }
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0;
};

}  // namespace rondo::sim
