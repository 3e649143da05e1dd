// LengthPrior: what finished steps say about the lengths of responses, and what a group's own samples add.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "rollout/request.h"

namespace rondo::rollout {

/// Logs of lengths as a one-way random-effects model: a group's mean is normal around the global one, a
/// response normal around its group's mean. Plain values: store them to resume a run.
struct LengthPrior {
  double log_median = 0.0;  // of all responses, in log tokens
  double sigma = 0.0;       // standard deviation of a log length
  double rho = 0.0;         // share of the variance that lies between groups, in [0, kMaxRho]
  double weight = 0.0;      // groups it was learned from, older ones discounted; 0: nothing learned
  bool operator==(const LengthPrior&) const = default;
};

/// {"log_median": …, "sigma": …, "rho": …, "weight": …}; numbers read back bit for bit.
std::string length_prior_json(const LengthPrior& prior);
/// kDataLoss for what is no such JSON, or no prior.
Result<LengthPrior> parse_length_prior(std::string_view json);

/// kDataLoss if the numbers are no prior of responses, whatever wrote them.
Result<void> check(const LengthPrior& prior);

/// Beyond this a group's first response would settle what is expected of the others.
inline constexpr double kMaxRho = 0.97;

/// The finished lengths of one step, group by group.
///
/// Does not know who generated them. A length at its limit is censored: the response would have gone on.
/// Owner thread.
class LengthSample final {
 public:
  struct Entry {
    float log_length = 0.0f;
    bool censored = false;
  };

  void begin_group() { begins_.push_back(entries_.size()); }
  /// Adds a response of the group begun last. tokens >= 1.
  void add(std::int32_t tokens, std::int32_t max_new_tokens);

  std::size_t num_groups() const { return begins_.size(); }
  std::span<const Entry> group(std::size_t index) const;
  std::span<const Entry> entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
  std::vector<std::size_t> begins_;
};

/// The true lengths of `groups` as a finished step.
LengthSample sample_of(std::span<const GroupSpec> groups);

/// The prior after one more step: a fresh fit, averaged with `before`, whose weight is halved.
///
/// Median and sigma are the maximum-likelihood fit of a censored normal (EM). rho comes from the analysis of
/// variance within and between groups, a censored log standing for its expected value and its remaining
/// variance counting as variation within; then one standard error is taken off, because too high a rho makes
/// the scheduler trust one short sibling. Unchanged if the sample has fewer than 2 groups of 2 responses.
LengthPrior learn(const LengthPrior& before, const LengthSample& sample);

/// What a group's responses are taken to be: their logs normal with this mean and standard deviation.
struct LengthForecast {
  double log_mean = 0.0;
  double deviation = 0.0;  // 0: nothing is known
  bool known() const { return deviation > 0.0; }
  bool operator==(const LengthForecast&) const = default;
};

/// The forecast m, s * sqrt(1 + 1/n) of a group's further responses.
///
/// s = sigma * sqrt(1 - rho), and m is the likeliest mean of the group's logs: normal around the prior's,
/// known from `finished` exactly and from `unfinished` as being beyond what these have generated. So the
/// first to finish, the shortest of the group, does not pass for typical. n counts what m rests on: (1 -
/// rho)/rho for the prior, 1 per finished response, up to 1 per unfinished one, the more the further beyond m
/// it is.
LengthForecast forecast(const LengthPrior& prior, std::span<const std::int32_t> finished,
                        std::span<const std::int32_t> unfinished);

/// How many standard deviations above its mean a normal goes with a probability of `share`, in (0, 0.5].
double normal_bound(double share);

/// The length that a response which has `generated` tokens and goes on exceeds with a probability of `share`,
/// in (0, 0.5]; at least 1.
///
/// What has outgrown a forecast was misjudged and goes on for long: the bound then grows faster than the
/// response.
std::int64_t upper_length(const LengthForecast& forecast, double share, std::int32_t generated);

}  // namespace rondo::rollout
