#include "sim/lengths.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

namespace rondo::sim {
namespace {

double normal_cdf(double x) {
  return 0.5 * std::erfc(-x / std::numbers::sqrt2);
}

double normal_density(double x) {
  return std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
}

// Bisection narrows it down, two Newton steps finish. Truncation asks for quantiles far below.
double normal_quantile(double p) {
  constexpr double kLeast = -12.0, kMost = 8.0;
  double low = kLeast;
  double high = kMost;
  for (int i = 0; i < 16; ++i) {
    const double middle = 0.5 * (low + high);
    (normal_cdf(middle) < p ? low : high) = middle;
  }
  double x = 0.5 * (low + high);
  for (int i = 0; i < 2; ++i) {
    x -= (normal_cdf(x) - p) / normal_density(x);
    x = std::clamp(x, kLeast, kMost);
  }
  return x;
}

// Of the log-normal X without its limit.
double share_below(const LengthConfig& config, double location, double x) {
  return normal_cdf((std::log(x) - location) / config.shape);
}

// E[X; X < x] = exp(location + shape^2 / 2) * cdf(z - shape), where z is x as a normal quantile.
double mass_below(const LengthConfig& config, double location, double x) {
  const double z = (std::log(x) - location) / config.shape;
  return std::exp(location + 0.5 * config.shape * config.shape) * normal_cdf(z - config.shape);
}

// The mean of lengths as they are drawn, whole numbers from 1 to the limit: the sum over k >= 2 of the share
// that rounds to k or more. Beyond the first it is an integral, by the midpoint rule.
double mean_length(const LengthConfig& config, double location) {
  const double max = config.max;
  const bool clips = config.at_max == AtMax::kClip;
  const double all_below = share_below(config, location, max);
  const double kept = clips ? 1.0 : all_below;
  const int summed = std::min(config.max, 64);
  double mean = 1.0;
  for (int k = 2; k <= summed; ++k) mean += (kept - share_below(config, location, k - 0.5)) / kept;
  double integral = mass_below(config, location, max) - mass_below(config, location, summed) -
                    summed * (all_below - share_below(config, location, summed));
  if (clips) integral += (max - summed) * (1.0 - all_below);
  return mean + integral / kept;
}

// Where bisection looks: from where every length is 1, to where what truncation leaves is too little for a
// double.
struct Locations {
  double low = 0.0;
  double high = 0.0;
};

Locations locations_of(const LengthConfig& config) {
  return {.low = -8.0 * config.shape - 1.0,
          .high = std::log(static_cast<double>(config.max)) + 7.0 * config.shape};
}

// The location for which lengths have the mean.
double fit_location(const LengthConfig& config) {
  auto [low, high] = locations_of(config);
  for (int i = 0; i < 100; ++i) {
    const double middle = 0.5 * (low + high);
    (mean_length(config, middle) < config.mean ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

// Standard normal numbers, the same on every machine with the same libm (Box-Muller).
class Normals final {
 public:
  explicit Normals(std::uint64_t seed) : random_(seed) {}
  double next() {
    constexpr double kUnit = 1.0 / 9007199254740992.0;  // 2^-53
    const double u = (static_cast<double>(random_() >> 11) + 0.5) * kUnit;
    const double v = static_cast<double>(random_() >> 11) * kUnit;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace

Result<void> LengthConfig::validate() const {
  constexpr double kBelowMax = 0.99;  // nearer to it all lengths would be the limit
  const double reached = mean_length(*this, locations_of(*this).high);
  const double most = max == 1 ? 1.0 : std::min(kBelowMax * max, reached);
  if (mean <= most) return {};
  return fail(
      Code::kInvalidArgument,
      "mean ({}) cannot be met: with max = {}, shape = {} and at_max = {} it is at least 1 and at most {}",
      mean, max, shape, at_max == AtMax::kClip ? "clip" : "truncate", std::floor(100.0 * most) / 100.0);
}

std::vector<rollout::GroupSpec> draw_groups(const LengthConfig& config, std::int64_t num_groups,
                                            std::uint64_t seed) {
  const double location = fit_location(config);
  const double max = config.max;
  const double below = normal_cdf((std::log(max) - location) / config.shape);
  const double shared_weight = std::sqrt(config.correlation);
  const double own_weight = std::sqrt(1.0 - config.correlation);
  Normals normals(seed);
  std::vector<rollout::GroupSpec> groups;
  groups.reserve(static_cast<std::size_t>(num_groups));
  std::int64_t next_id = 0;
  for (std::int64_t g = 0; g < num_groups; ++g) {
    rollout::GroupSpec group{.id = GroupId(g), .prompt_tokens = config.prompt_tokens, .samples = {}};
    group.samples.reserve(static_cast<std::size_t>(config.group_size));
    const double shared = shared_weight * normals.next();
    for (int s = 0; s < config.group_size; ++s) {
      double z = shared + own_weight * normals.next();
      if (config.at_max == AtMax::kTruncate) z = normal_quantile(normal_cdf(z) * below);
      const double length = std::clamp(std::round(std::exp(location + config.shape * z)), 1.0, max);
      group.samples.push_back({.id = RequestId(next_id++),
                               .max_new_tokens = config.max,
                               .true_tokens = static_cast<std::int32_t>(length)});
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace rondo::sim
