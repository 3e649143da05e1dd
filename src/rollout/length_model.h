// Group-correlated, heavy-tailed response lengths for tests and benches.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "rollout/length_prior.h"
#include "rollout/request.h"

namespace rondo::rollout {

/// log length = log(median) + sigma * (sqrt(rho) * group + sqrt(1 - rho) * own), cut at [1, max].
struct LengthModel {
  double median = 0.0;
  double sigma = 0.0;
  double rho = 0.0;
  std::int32_t max = 0;
};

/// A step's groups with their true lengths. The same seed gives the same groups.
inline std::vector<GroupSpec> draw_groups(const LengthModel& model, int num_groups, int num_samples,
                                          std::int32_t prompt_tokens, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<GroupSpec> groups;
  std::int64_t id = 0;
  for (int g = 0; g < num_groups; ++g) {
    GroupSpec group{.id = GroupId(g), .prompt_tokens = prompt_tokens, .samples = {}};
    const double shared = std::sqrt(model.rho) * normal(random);
    for (int s = 0; s < num_samples; ++s) {
      const double z = shared + std::sqrt(1.0 - model.rho) * normal(random);
      const double length = std::min<double>(model.max, model.median * std::exp(model.sigma * z));
      group.samples.push_back({.id = RequestId(id++),
                               .max_new_tokens = model.max,
                               .true_tokens = std::max(1, static_cast<std::int32_t>(length))});
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace rondo::rollout
