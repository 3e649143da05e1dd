// EtaEstimator: how long the rest of a run will take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace rondo::metrics {

/// Estimates from the median of the recent step times, so that one slow step (a checkpoint, an evaluation)
/// does not move it. Does not read a clock: times are Clock::now_ns(). One owner thread.
class EtaEstimator final {
 public:
  /// The first step starts now. `window` >= 1 step times are kept.
  explicit EtaEstimator(std::int64_t now_ns, std::size_t window = 15);

  /// A step has ended, and the next one starts.
  void step_done(std::int64_t now_ns);
  /// The median of the recent step times; nullopt before the first step has ended.
  std::optional<double> step_seconds() const;
  /// Time left for `steps` more steps, the running one included: less what has passed of it, at most a step.
  std::optional<double> seconds_left(std::int64_t steps, std::int64_t now_ns) const;

 private:
  std::int64_t step_start_ns_;
  std::size_t window_;
  std::deque<std::int64_t> recent_ns_;
};

}  // namespace rondo::metrics
