// Time as an argument: the real clock here, a simulated one in tests and the simulator.
#pragma once

#include <cstdint>

namespace rondo {

/// Monotonic time. Any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Nanoseconds since an arbitrary origin; never goes back.
  virtual std::int64_t now_ns() const = 0;
  double now_s() const { return static_cast<double>(now_ns()) * 1e-9; }
};

/// The operating system's monotonic clock.
class SteadyClock final : public Clock {
 public:
  std::int64_t now_ns() const override;
};

}  // namespace rondo
