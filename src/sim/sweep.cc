#include "sim/sweep.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "metrics/console.h"

namespace rondo::sim {
namespace {

struct Axis {
  std::string key;
  std::vector<std::string> values;
};

bool has_twice(std::vector<std::string> values) {
  std::ranges::sort(values);
  return std::ranges::adjacent_find(values) != values.end();
}

Result<Axis> parse_axis(const std::string& text) {
  const std::size_t equals = text.find('=');
  Axis axis{.key = text.substr(0, equals), .values = {}};
  if (equals != std::string::npos) {
    std::istringstream list(text.substr(equals + 1));
    for (std::string value; std::getline(list, value, ',');) axis.values.push_back(value);
  }
  if (has_twice(axis.values)) return fail(Code::kInvalidArgument, "--sweep: '{}' has a value twice", text);
  if (!axis.values.empty() && !axis.key.empty()) return axis;
  return fail(Code::kInvalidArgument,
              "--sweep: '{}' is not key=value,value,…, as lengths.correlation=0,0.5,0.9", text);
}

// Every combination of values, the last axis fastest.
std::vector<std::vector<std::string>> combinations(const std::vector<Axis>& axes) {
  std::vector<std::vector<std::string>> all = {{}};
  for (const Axis& axis : axes) {
    std::vector<std::vector<std::string>> longer;
    for (const std::vector<std::string>& settings : all) {
      for (const std::string& value : axis.values) {
        longer.push_back(settings);
        longer.back().push_back(axis.key + "=" + value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace

Result<std::vector<SweepPoint>> sweep(const Workload& workload, std::span<const std::string> axis_texts,
                                      const CompareOptions& options) {
  std::vector<Axis> axes;
  for (const std::string& text : axis_texts) {
    RONDO_ASSIGN(Axis axis, parse_axis(text));
    if (std::ranges::find(axes, axis.key, &Axis::key) != axes.end())
      return fail(Code::kInvalidArgument, "--sweep: {} is there twice; list all its values behind one",
                  axis.key);
    axes.push_back(std::move(axis));
  }
  std::vector<SweepPoint> points;
  std::vector<Variant> all;
  for (const std::vector<std::string>& settings : combinations(axes)) {
    RONDO_ASSIGN_CTX(const Workload changed, with_overrides(workload, settings), "--sweep");
    RONDO_ASSIGN(std::vector<Variant> variants, variants_of(changed));
    points.push_back({.setting = joined(settings), .variants = {}});
    std::ranges::move(variants, std::back_inserter(all));
  }
  RONDO_ASSIGN(std::vector<VariantOutcomes> outcomes, compare(all, options));
  const std::size_t per_point = outcomes.size() / points.size();
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    points[i / per_point].variants.push_back(std::move(outcomes[i]));
  }
  return points;
}

std::string sweep_table(const std::vector<SweepPoint>& points) {
  metrics::ConsoleTable table(
      {"setting", "variant", "tokens/s", "speed-up", "least", "most", "total s", "tail s"});
  for (const SweepPoint& point : points) {
    for (const VariantOutcomes& variant : point.variants) {
      const Spread ratio = ratio_of(variant, point.variants.front(), speed_of).value_or(Spread{});
      table.add_row({point.setting, variant.label, fmt::format("{:.0f}", mean_of(variant, speed_of)),
                     fmt::format("{:.3f}", ratio.mean), fmt::format("{:.3f}", ratio.least),
                     fmt::format("{:.3f}", ratio.most), fmt::format("{:.0f}", mean_of(variant, total_of)),
                     fmt::format("{:.0f}", mean_of(variant, tail_of))});
    }
  }
  return table.to_string();
}

std::string sweep_bars(const std::vector<SweepPoint>& points) {
  constexpr double kWidth = 50.0;
  double most = 0.0;
  std::size_t widest = 0;
  for (const SweepPoint& point : points) {
    widest = std::max(widest, point.setting.size());
    for (const VariantOutcomes& variant : point.variants) most = std::max(most, mean_of(variant, speed_of));
  }
  std::string text;
  for (std::size_t v = 0; v < points.front().variants.size(); ++v) {
    text += fmt::format("{}, tokens/s\n", points.front().variants[v].label);
    for (const SweepPoint& point : points) {
      const double value = mean_of(point.variants[v], speed_of);
      text +=
          fmt::format("  {:<{}} {} {:.0f}\n", point.setting, widest,
                      std::string(static_cast<std::size_t>(std::lround(kWidth * value / most)), '#'), value);
    }
  }
  return text;
}

}  // namespace rondo::sim
