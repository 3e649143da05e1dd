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

// Bisection narrows it down, two Newton steps finish.
double normal_quantile(double p) {
  constexpr double kFar = 8.0;
  double low = -kFar;
  double high = kFar;
  for (int i = 0; i < 14; ++i) {
    const double middle = 0.5 * (low + high);
    (normal_cdf(middle) < p ? low : high) = middle;
  }
  double x = 0.5 * (low + high);
  for (int i = 0; i < 2; ++i) {
    x -= (normal_cdf(x) - p) / std::max(normal_density(x), 1e-14);
    x = std::clamp(x, -kFar, kFar);
  }
  return x;
}

double mean_length(const LengthConfig& config, double location) {
  const double limit = (std::log(static_cast<double>(config.max)) - location) / config.shape;
  const double below = normal_cdf(limit);
  // exp(location + shape^2 / 2) * cdf(limit - shape), in a form that does not overflow.
  const double whole =
      std::exp(location + 0.5 * config.shape * config.shape) * normal_cdf(limit - config.shape);
  if (config.at_max == AtMax::kClip) return whole + config.max * (1.0 - below);
  return whole / below;
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
  if (mean > 0.99 * max) {
    return fail(Code::kInvalidArgument, "mean ({}) must be below the limit; with max = {} at most {}", mean,
                max, 0.99 * max);
  }
  return {};
}

double fit_location(const LengthConfig& config) {
  double low = -10.0;
  // Far beyond the limit the mean only creeps towards it, and what is left of the distribution below it is
  // too little for a double.
  double high = std::log(static_cast<double>(config.max)) + 7.0 * config.shape;
  for (int i = 0; i < 100; ++i) {
    const double middle = 0.5 * (low + high);
    (mean_length(config, middle) < config.mean ? low : high) = middle;
  }
  return 0.5 * (low + high);
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
      const double length = std::clamp(std::exp(location + config.shape * z), 1.0, max);
      group.samples.push_back({.id = RequestId(next_id++),
                               .max_new_tokens = config.max,
                               .true_tokens = static_cast<std::int32_t>(length)});
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace rondo::sim
