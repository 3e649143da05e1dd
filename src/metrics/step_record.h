// StepRecord: what one training step reports, each value marked deterministic or measured.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace rondo::metrics {

/// Whether a value follows from configuration, data and seed alone, or from a clock or the machine (seconds,
/// memory, rates). Runs are compared by their deterministic values.
enum class Nature { kDeterministic, kMeasured };

using MetricValue = std::variant<std::int64_t, double>;

/// An ordered set of name -> number. A plain value; one owner thread.
///
/// Names are the caller's ("actor/pg_loss"); "step" and "measured" belong to the log and are a bug here.
/// Setting a name again replaces its value and nature and keeps its place.
class StepRecord final {
 public:
  struct Entry {
    std::string name;
    MetricValue value;
    Nature nature;
  };

  template <class T>
  requires(std::is_arithmetic_v<T> &&
           !std::same_as<T, bool>) void set(std::string_view name, T value,
                                            Nature nature = Nature::kDeterministic) {
    if constexpr (std::is_integral_v<T>) {
      put(name, static_cast<std::int64_t>(value), nature);
    } else {
      put(name, static_cast<double>(value), nature);
    }
  }

  /// Sets name/mean, name/max and name/min; nothing for no values. The mean sums in the order of `values`;
  /// a NaN among them makes all three NaN.
  void add_stats(std::string_view name, std::span<const double> values,
                 Nature nature = Nature::kDeterministic);
  /// The same for any range of numbers.
  template <std::ranges::input_range R>
  requires(!std::convertible_to<const R&, std::span<const double>>) void add_stats(
      std::string_view name, const R& values, Nature nature = Nature::kDeterministic) {
    std::vector<double> converted;
    for (const auto& value : values) converted.push_back(static_cast<double>(value));
    add_stats(name, std::span<const double>(converted), nature);
  }

  /// The value of a name as a double, if set.
  std::optional<double> find(std::string_view name) const;
  /// In the order of their first setting.
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  void put(std::string_view name, MetricValue value, Nature nature);

  std::vector<Entry> entries_;
};

}  // namespace rondo::metrics
