#include "metrics/eta_estimator.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace rondo::metrics {

EtaEstimator::EtaEstimator(std::int64_t now_ns, std::size_t window)
    : step_start_ns_(now_ns), window_(window) {
  RONDO_CHECK_GE(window, std::size_t{1});
}

void EtaEstimator::step_done(std::int64_t now_ns) {
  recent_ns_.push_back(now_ns - step_start_ns_);
  if (recent_ns_.size() > window_) recent_ns_.pop_front();
  step_start_ns_ = now_ns;
}

std::optional<double> EtaEstimator::step_seconds() const {
  if (recent_ns_.empty()) return std::nullopt;
  std::vector<std::int64_t> sorted(recent_ns_.begin(), recent_ns_.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size();
  return static_cast<double>(sorted[(n - 1) / 2] + sorted[n / 2]) * 0.5e-9;
}

std::optional<double> EtaEstimator::seconds_left(std::int64_t steps, std::int64_t now_ns) const {
  const std::optional<double> step = step_seconds();
  if (!step) return std::nullopt;
  if (steps <= 0) return 0.0;
  const double passed = std::min(static_cast<double>(now_ns - step_start_ns_) * 1e-9, *step);
  return static_cast<double>(steps) * *step - passed;
}

}  // namespace rondo::metrics
