#include "metrics/step_record.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace rondo::metrics {

void StepRecord::add_stats(std::string_view name, std::span<const double> values, Nature nature) {
  if (values.empty()) return;
  double sum = 0;
  double max = values[0];
  double min = values[0];
  for (const double value : values) {
    sum += value;
    max = std::max(max, value);
    min = std::min(min, value);
  }
  if (std::any_of(values.begin(), values.end(), [](double value) { return std::isnan(value); }))
    sum = max = min = std::numeric_limits<double>::quiet_NaN();
  const std::string prefix(name);
  put(prefix + "/mean", sum / static_cast<double>(values.size()), nature);
  put(prefix + "/max", max, nature);
  put(prefix + "/min", min, nature);
}

std::optional<double> StepRecord::find(std::string_view name) const {
  for (const Entry& entry : entries_)
    if (entry.name == name)
      return std::visit([](auto value) { return static_cast<double>(value); }, entry.value);
  return std::nullopt;
}

void StepRecord::put(std::string_view name, MetricValue value, Nature nature) {
  RONDO_CHECK(name != "step" && name != "measured");
  for (Entry& entry : entries_) {
    if (entry.name != name) continue;
    entry.value = value;
    entry.nature = nature;
    return;
  }
  entries_.push_back({std::string(name), value, nature});
}

}  // namespace rondo::metrics
