#include "sim/comparison.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/thread_pool.h"
#include "rollout/length_prior.h"
#include "sim/lengths.h"
#include "sim/trace_gain.h"

namespace rondo::sim {
namespace {

// What a seed generates. Of a policy that issues more than it wants, more groups than the workload's.
struct Responses {
  std::vector<rollout::GroupSpec> groups;
  std::optional<DraftGain> measured_gain;
};

Result<Responses> responses_of(const Workload& workload, std::uint64_t seed) {
  if (!workload.trace.file.empty()) {
    RONDO_ASSIGN(Trace trace, read_trace(workload.trace));
    Responses result{.groups = std::move(trace.groups), .measured_gain = {}};
    if (!workload.speculation.enabled || !workload.trace.measure_drafts || trace.tokens.empty())
      return result;
    trace.groups = result.groups;
    RONDO_ASSIGN(result.measured_gain, measure_gain(trace));
    return result;
  }
  RONDO_ASSIGN(const auto scheduler, rollout::Scheduler::create(workload.schedule, {}));
  return Responses{
      .groups = draw_groups(workload.lengths, scheduler->groups_to_issue(workload.lengths.groups), seed),
      .measured_gain = {}};
}

// What an earlier iteration of the same distribution has taught.
rollout::LengthPrior prior_of(const std::vector<rollout::GroupSpec>& groups) {
  rollout::LengthSample sample;
  for (const rollout::GroupSpec& group : groups) {
    sample.begin_group();
    for (const rollout::SampleSpec& s : group.samples) sample.add(s.true_tokens, s.max_new_tokens);
  }
  return rollout::learn({}, sample);
}

}  // namespace

Spread spread_of(const std::vector<double>& values) {
  RONDO_CHECK(!values.empty());
  return {.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size()),
          .least = std::ranges::min(values),
          .most = std::ranges::max(values)};
}

Result<Outcome> simulate_seed(const Workload& workload, std::uint64_t seed, Recording* recording) {
  RONDO_ASSIGN(ClusterSpec cluster, resolve(workload));
  RONDO_ASSIGN(Responses responses, responses_of(workload, seed));
  const std::vector<rollout::GroupSpec>& groups = responses.groups;
  if (responses.measured_gain) cluster.gain = *std::move(responses.measured_gain);
  const rollout::PolicyRules& rules = rollout::rules_of(workload.schedule.policy);
  RolloutSpec rollout{.groups = groups, .prior = {}, .seed = seed};
  if (!rules.strictly_synchronous) {
    const auto issued = static_cast<double>(groups.size());
    rollout.goal =
        workload.trace.file.empty()
            ? workload.lengths.groups
            : std::max<std::int64_t>(1, static_cast<std::int64_t>(issued / workload.schedule.over_issue));
  }
  if (rules.learns_lengths) {
    constexpr std::uint64_t kEarlier = std::uint64_t{1} << 40;  // no seed of a comparison
    RONDO_ASSIGN(const Responses before, responses_of(workload, seed + kEarlier));
    rollout.prior = prior_of(before.groups);
  }
  return simulate(cluster, rollout, recording);
}

Result<std::vector<timeline::Timeline>> record_timelines(const std::vector<Variant>& variants) {
  std::vector<timeline::Timeline> timelines;
  for (const Variant& variant : variants) {
    Recording recording(variant.label, false);
    const auto seed = static_cast<std::uint64_t>(variant.workload.seed);
    RONDO_ASSIGN_CTX(const Outcome outcome, simulate_seed(variant.workload, seed, &recording), variant.label);
    timelines.push_back(recording.timeline.finish(as_ns(outcome.total_s)));
  }
  return timelines;
}

Result<std::vector<VariantOutcomes>> compare(const std::vector<Variant>& variants, int num_seeds,
                                             int num_threads) {
  const auto seeds = static_cast<std::size_t>(num_seeds);
  std::vector<std::optional<Result<Outcome>>> results(variants.size() * seeds);
  std::atomic<std::size_t> next{0};
  ThreadPool team(std::max(1, num_threads));
  team.run([&](int) {
    for (std::size_t job = next++; job < results.size(); job = next++) {
      const Workload& workload = variants[job / seeds].workload;
      results[job] =
          simulate_seed(workload, static_cast<std::uint64_t>(workload.seed) + job % seeds, nullptr);
    }
  });
  std::vector<VariantOutcomes> all;
  for (std::size_t v = 0; v < variants.size(); ++v) {
    all.push_back({.label = variants[v].label, .outcomes = {}});
    for (std::size_t s = 0; s < seeds; ++s) {
      Result<Outcome>& result = *results[v * seeds + s];
      if (!result) return tl::unexpected(std::move(result).error().with_context(variants[v].label));
      all.back().outcomes.push_back(*std::move(result));
    }
  }
  return all;
}

}  // namespace rondo::sim
