// StepSeries: the mean of a piecewise constant quantity in equal bins of time, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rondo::timeline {

/// Integrates a quantity that keeps its value from one set() to the next. When the time covered outgrows the
/// bins, their width doubles; so the result depends on the course and on the end alone, not on how many times
/// the value was set. 0 before the first set(). A plain value; one owner thread.
class StepSeries final {
 public:
  /// `max_bins` >= 2.
  StepSeries(std::int64_t begin_ns, std::size_t max_bins);

  /// The quantity is `value` from `time_ns` on. A time before the last one counts as the last one.
  void set(std::int64_t time_ns, double value);
  std::int64_t bin_ns() const { return bin_ns_; }
  /// The means up to `end_ns`, the last of what the last bin covers. No set() with a later time came before.
  std::vector<double> means(std::int64_t end_ns);

 private:
  void advance(std::int64_t time_ns);
  void double_width();

  std::int64_t begin_ns_;
  std::size_t max_bins_;
  std::int64_t bin_ns_ = 1'000;
  std::int64_t now_ns_ = 0;  // since begin_ns_
  double value_ = 0;
  std::vector<double> sums_;  // value times nanoseconds
};

}  // namespace rondo::timeline
