#include "timeline/step_series.h"

#include <algorithm>

#include "base/check.h"

namespace rondo::timeline {

StepSeries::StepSeries(std::int64_t begin_ns, std::size_t max_bins)
    : begin_ns_(begin_ns), max_bins_(max_bins) {
  RONDO_CHECK(max_bins >= 2);
}

void StepSeries::set(std::int64_t time_ns, double value) {
  advance(time_ns);
  value_ = value;
}

std::vector<double> StepSeries::means(std::int64_t end_ns) {
  advance(end_ns);
  std::vector<double> result = sums_;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const std::int64_t covered = std::min(bin_ns_, now_ns_ - static_cast<std::int64_t>(i) * bin_ns_);
    result[i] /= static_cast<double>(covered);
  }
  return result;
}

// Adds the present value up to `time_ns`, bin by bin.
void StepSeries::advance(std::int64_t time_ns) {
  const std::int64_t target = std::max(time_ns - begin_ns_, now_ns_);
  while (target > bin_ns_ * static_cast<std::int64_t>(max_bins_)) double_width();
  while (now_ns_ < target) {
    const std::int64_t bin = now_ns_ / bin_ns_;
    const std::int64_t until = std::min(target, (bin + 1) * bin_ns_);
    if (static_cast<std::size_t>(bin) >= sums_.size()) sums_.resize(static_cast<std::size_t>(bin) + 1);
    sums_[static_cast<std::size_t>(bin)] += value_ * static_cast<double>(until - now_ns_);
    now_ns_ = until;
  }
}

void StepSeries::double_width() {
  bin_ns_ *= 2;
  const std::size_t half = (sums_.size() + 1) / 2;
  for (std::size_t i = 0; i < half; ++i) {
    const double second = 2 * i + 1 < sums_.size() ? sums_[2 * i + 1] : 0.0;
    sums_[i] = sums_[2 * i] + second;
  }
  sums_.resize(half);
}

}  // namespace rondo::timeline
