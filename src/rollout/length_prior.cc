#include "rollout/length_prior.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace rondo::rollout {
namespace {

constexpr double kDiscount = 0.5;       // of earlier steps, per step
constexpr double kMinSigma = 0.05;      // equal lengths do not mean certainty
constexpr double kLargestLength = 1e9;  // tokens; keeps the quantile an integer
constexpr int kEmRounds = 50;

struct Normal {
  double mean = 0.0;
  double variance = 0.0;
};

// Of the standard normal.
double tail_above(double z) {
  return 0.5 * std::erfc(z / std::numbers::sqrt2);
}
double density_at(double z) {
  return std::exp(-0.5 * z * z) / std::sqrt(2.0 * std::numbers::pi);
}

// E[x] and Var[x] of a normal known to be above `bound`.
Normal beyond(const Normal& normal, double bound) {
  const double sigma = std::sqrt(normal.variance);
  const double alpha = (bound - normal.mean) / sigma;
  const double tail = tail_above(alpha);
  constexpr double kNoTail = 1e-12;  // there the hazard is alpha + 1/alpha, and hardly anything is left above
  const double hazard = tail > kNoTail ? density_at(alpha) / tail : alpha + 1.0 / alpha;
  const double left = std::max(0.0, 1.0 - hazard * (hazard - alpha));
  return {normal.mean + sigma * hazard, normal.variance * left};
}

// What a response counts as under the present fit: itself, or what a censored one is expected to be.
Normal completed(const LengthSample::Entry& entry, const Normal& fit) {
  return entry.censored ? beyond(fit, entry.log_length) : Normal{entry.log_length, 0.0};
}

// Maximum likelihood of a normal with some values known only from below.
Normal fit_censored(std::span<const LengthSample::Entry> entries) {
  const auto count = static_cast<double>(entries.size());
  Normal fit;
  for (const auto& entry : entries) fit.mean += entry.log_length / count;
  for (const auto& entry : entries) fit.variance += std::pow(entry.log_length - fit.mean, 2) / count;
  fit.variance = std::max(fit.variance, kMinSigma * kMinSigma);
  const bool any = std::ranges::any_of(entries, &LengthSample::Entry::censored);
  const bool all = std::ranges::all_of(entries, &LengthSample::Entry::censored);
  if (!any || all) return fit;  // nothing but bounds: there is no finite maximum
  for (int round = 0; round < kEmRounds; ++round) {
    Normal next;
    for (const auto& entry : entries) next.mean += completed(entry, fit).mean / count;
    for (const auto& entry : entries) {
      const Normal value = completed(entry, fit);
      next.variance += (std::pow(value.mean - next.mean, 2) + value.variance) / count;
    }
    next.variance = std::max(next.variance, kMinSigma * kMinSigma);
    fit = next;
  }
  return fit;
}

// Sums of the one-way analysis of variance.
struct Variation {
  double within = 0.0;
  double between = 0.0;
  double count = 0.0;
  double sum_of_squared_sizes = 0.0;
  double num_groups = 0.0;
};

Variation variation_of(const LengthSample& sample, const Normal& fit) {
  Variation sums;
  double grand_mean = 0.0;
  for (const auto& entry : sample.entries()) grand_mean += completed(entry, fit).mean;
  grand_mean /= static_cast<double>(sample.entries().size());
  for (std::size_t g = 0; g < sample.num_groups(); ++g) {
    const auto group = sample.group(g);
    if (group.empty()) continue;
    const auto size = static_cast<double>(group.size());
    double mean = 0.0;
    for (const auto& entry : group) mean += completed(entry, fit).mean / size;
    for (const auto& entry : group) {
      const Normal value = completed(entry, fit);
      sums.within += std::pow(value.mean - mean, 2) + value.variance;
    }
    sums.between += size * std::pow(mean - grand_mean, 2);
    sums.count += size;
    sums.sum_of_squared_sizes += size * size;
    sums.num_groups += 1.0;
  }
  return sums;
}

// The intraclass correlation less one standard error (Fisher's, for equal groups of the mean size).
double cautious_rho(const Variation& sums) {
  const double within = sums.within / (sums.count - sums.num_groups);
  const double between = sums.between / (sums.num_groups - 1.0);
  const double size = (sums.count - sums.sum_of_squared_sizes / sums.count) / (sums.num_groups - 1.0);
  if (between <= within || size <= 1.0) return 0.0;
  const double rho = (between - within) / (between + (size - 1.0) * within);
  const double error = (1.0 - rho) * (1.0 + (size - 1.0) * rho) *
                       std::sqrt(2.0 / (size * (size - 1.0) * (sums.num_groups - 1.0)));
  return std::clamp(rho - error, 0.0, kMaxRho);
}

// What is known of the mean of a group's log lengths.
struct GroupMean {
  double log_mean = 0.0;
  double variance = 0.0;  // of one response around it
  double weight = 0.0;    // in responses
};

// Newton's method from below: the slope of the log likelihood is convex and falls, so no step goes too far.
GroupMean mean_of_group(const LengthPrior& prior, std::span<const std::int32_t> finished,
                        std::span<const std::int32_t> unfinished) {
  constexpr double kUninformative = 4.0;  // standard deviations below the mean
  constexpr int kMostRounds = 8;
  constexpr double kCloseEnough = 1e-4;          // of a log length
  const double rho = std::max(prior.rho, 1e-6);  // 0 would make the prior's weight infinite
  const double sigma = std::max(prior.sigma, kMinSigma) * std::sqrt(1.0 - rho);
  const double prior_weight = (1.0 - rho) / rho;
  double sum = prior_weight * prior.log_median;
  for (const std::int32_t tokens : finished) sum += std::log(tokens);
  const double known = prior_weight + static_cast<double>(finished.size());
  GroupMean mean{.log_mean = sum / known, .variance = sigma * sigma, .weight = known};
  for (int round = 0; round < kMostRounds; ++round) {
    double slope = sum - known * mean.log_mean;
    mean.weight = known;
    for (const std::int32_t tokens : unfinished) {
      if (tokens < 1 || std::log(tokens) < mean.log_mean - kUninformative * sigma) continue;
      const Normal value = beyond({mean.log_mean, mean.variance}, std::log(tokens));
      slope += value.mean - mean.log_mean;
      mean.weight += 1.0 - value.variance / mean.variance;
    }
    mean.log_mean += slope / mean.weight;
    if (slope < kCloseEnough * mean.weight) break;
  }
  return mean;
}

}  // namespace

Result<void> check(const LengthPrior& prior) {
  constexpr double kLargestLog = 50.0;  // of a length; beyond it no response is
  const bool is_prior = std::abs(prior.log_median) <= kLargestLog && prior.sigma >= 0.0 &&
                        prior.sigma <= kLargestLog && prior.rho >= 0.0 && prior.rho <= kMaxRho &&
                        prior.weight >= 0.0 && std::isfinite(prior.weight);
  if (!is_prior) return fail(Code::kDataLoss, "no length prior: its numbers are out of range");
  return {};
}

void LengthSample::add(std::int32_t tokens, std::int32_t max_new_tokens) {
  RONDO_CHECK(!begins_.empty() && tokens >= 1);
  entries_.push_back({static_cast<float>(std::log(tokens)), tokens >= max_new_tokens});
}

std::span<const LengthSample::Entry> LengthSample::group(std::size_t index) const {
  const std::size_t begin = begins_[index];
  const std::size_t end = index + 1 < begins_.size() ? begins_[index + 1] : entries_.size();
  return std::span(entries_).subspan(begin, end - begin);
}

LengthSample sample_of(std::span<const GroupSpec> groups) {
  LengthSample sample;
  for (const GroupSpec& group : groups) {
    sample.begin_group();
    for (const SampleSpec& s : group.samples) sample.add(s.true_tokens, s.max_new_tokens);
  }
  return sample;
}

LengthPrior learn(const LengthPrior& before, const LengthSample& sample) {
  constexpr std::size_t kMinGroups = 2;
  if (sample.num_groups() < kMinGroups || sample.entries().size() < 2 * sample.num_groups()) return before;
  const Normal fit = fit_censored(sample.entries());
  const auto fresh = static_cast<double>(sample.num_groups());
  const double old = before.weight * kDiscount;
  const double share = fresh / (fresh + old);
  const auto average = [share](double was, double is) { return was + share * (is - was); };
  return {.log_median = average(before.log_median, fit.mean),
          .sigma = average(before.sigma, std::sqrt(fit.variance)),
          .rho = average(before.rho, cautious_rho(variation_of(sample, fit))),
          .weight = fresh + old};
}

LengthForecast forecast(const LengthPrior& prior, std::span<const std::int32_t> finished,
                        std::span<const std::int32_t> unfinished) {
  const GroupMean mean = mean_of_group(prior, finished, unfinished);
  return {mean.log_mean, std::sqrt(mean.variance * (1.0 + 1.0 / mean.weight))};
}

// Newton's method on the log of the tail, from log(tail(z)) = -0.416 z^2 - 0.717 z - log 2, which is within a
// twentieth of z.
double normal_bound(double share) {
  RONDO_CHECK(share > 0.0 && share <= 0.5);
  constexpr int kRounds = 3;
  const double log_share = std::log(share);
  double z =
      (std::sqrt(0.717 * 0.717 - 4.0 * 0.416 * (log_share + std::numbers::ln2)) - 0.717) / (2.0 * 0.416);
  for (int round = 0; round < kRounds; ++round) {
    const double tail = tail_above(z);
    z += (std::log(tail) - log_share) * tail / density_at(z);
  }
  return z;
}

std::int64_t upper_length(const LengthForecast& forecast, double share, std::int32_t generated) {
  constexpr double kFar = 7.0;  // deviations; beyond it log(tail(z)) is -z^2 / 2 and what hardly changes
  double z = 0.0;
  const double reached =
      generated < 1 ? -kFar : (std::log(generated) - forecast.log_mean) / forecast.deviation;
  if (reached > kFar) {
    z = std::sqrt(reached * reached - 2.0 * std::log(share));
  } else {
    z = normal_bound(share * tail_above(reached));
  }
  const double upper = std::exp(forecast.log_mean + z * forecast.deviation);
  return std::max<std::int64_t>(1, std::llround(std::min(upper, kLargestLength)));
}

}  // namespace rondo::rollout
