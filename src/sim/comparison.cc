#include "sim/comparison.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/thread_pool.h"
#include "rollout/length_prior.h"
#include "sim/lengths.h"
#include "sim/recording.h"
#include "sim/trace_gain.h"

namespace rondo::sim {
namespace {

bool has_trace(const Workload& workload) {
  return !workload.trace.file.empty();
}

// The traces of all variants, each file read and its drafts measured once. Immutable once loaded.
class Traces final {
 public:
  struct Loaded {
    TraceConfig config;
    Trace trace;
    std::optional<DraftGain> gain = {};
  };

  static Result<Traces> load(const std::vector<Variant>& variants) {
    Traces traces;
    for (const Variant& variant : variants) {
      const Workload& workload = variant.workload;
      if (!has_trace(workload)) continue;
      auto loaded = std::ranges::find(traces.all_, workload.trace, &Loaded::config);
      if (loaded == traces.all_.end()) {
        RONDO_ASSIGN_CTX(Trace trace, read_trace(workload.trace), variant.label);
        loaded = traces.all_.insert(loaded, Loaded{.config = workload.trace, .trace = std::move(trace)});
      }
      const bool measures = workload.speculation.enabled && workload.trace.measure_drafts;
      if (!measures || loaded->gain || loaded->trace.tokens.empty()) continue;
      RONDO_ASSIGN_CTX(loaded->gain, measure_gain(loaded->trace), variant.label);
    }
    return traces;
  }

  const Loaded& of(const Workload& workload) const {
    const auto it = std::ranges::find(all_, workload.trace, &Loaded::config);
    RONDO_CHECK(it != all_.end());
    return *it;
  }

 private:
  std::vector<Loaded> all_;
};

// What a seed generates. Of a policy that issues more than it wants, more groups than the workload's.
Result<std::vector<rollout::GroupSpec>> drawn_groups(const Workload& workload, std::uint64_t seed) {
  RONDO_ASSIGN(const auto scheduler, rollout::Scheduler::create(workload.schedule, {}));
  return draw_groups(workload.lengths, scheduler->groups_to_issue(workload.lengths.groups), seed);
}

// Of a trace, as many as it would have been issued for.
std::int64_t goal_of(const Workload& workload, std::size_t num_groups) {
  if (rollout::rules_of(workload.schedule.policy).strictly_synchronous) return 0;
  if (!has_trace(workload)) return workload.lengths.groups;
  const double wanted = static_cast<double>(num_groups) / workload.schedule.over_issue;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(wanted));
}

// What an earlier iteration of the same distribution has taught; of a trace, the trace itself.
Result<rollout::LengthPrior> prior_of(const Workload& workload, std::span<const rollout::GroupSpec> groups,
                                      std::uint64_t seed) {
  if (!rollout::rules_of(workload.schedule.policy).learns_lengths) return rollout::LengthPrior{};
  if (has_trace(workload)) return rollout::learn({}, rollout::sample_of(groups));
  constexpr std::uint64_t kEarlier = std::uint64_t{1} << 40;  // no seed of a comparison
  RONDO_ASSIGN(const auto before, drawn_groups(workload, seed + kEarlier));
  return rollout::learn({}, rollout::sample_of(before));
}

Result<Outcome> simulate_seed(const Workload& workload, const Traces& traces, std::uint64_t seed,
                              Recording* recording) {
  RONDO_ASSIGN(ClusterSpec cluster, resolve(workload));
  std::vector<rollout::GroupSpec> drawn;
  std::span<const rollout::GroupSpec> groups;
  if (has_trace(workload)) {
    const Traces::Loaded& loaded = traces.of(workload);
    groups = loaded.trace.groups;
    if (loaded.gain) cluster.gain = *loaded.gain;
  } else {
    RONDO_ASSIGN(drawn, drawn_groups(workload, seed));
    groups = drawn;
  }
  RolloutSpec rollout{.groups = groups, .goal = goal_of(workload, groups.size()), .prior = {}, .seed = seed};
  RONDO_ASSIGN(rollout.prior, prior_of(workload, groups, seed));
  return simulate(cluster, rollout, recording);
}

// One simulation of the comparison.
struct Job {
  std::optional<Result<Outcome>> result;
  std::optional<timeline::Timeline> timeline;
};

void run_job(const Variant& variant, const Traces& traces, std::size_t seed, bool records, Job& job) {
  const Workload& workload = variant.workload;
  const std::uint64_t value = static_cast<std::uint64_t>(workload.seed) + seed;
  std::optional<Recording> recording;
  if (records) recording.emplace(variant.label, false);
  job.result = simulate_seed(workload, traces, value, recording ? &*recording : nullptr);
  if (recording && *job.result) job.timeline = recording->timeline.finish(as_ns((*job.result)->total_s));
}

Result<void> check_seeds(const std::vector<Variant>& variants, int num_seeds) {
  const bool vary = std::ranges::any_of(variants, [](const Variant& variant) {
    return !has_trace(variant.workload) || variant.workload.speculation.enabled;
  });
  if (num_seeds == 1 || vary) return {};
  return fail(
      Code::kInvalidArgument,
      "--seeds {}: a trace is the same for every seed, and nothing is drawn without speculation; leave "
      "--seeds out",
      num_seeds);
}

Spread spread_over(const std::vector<double>& values) {
  RONDO_CHECK(!values.empty());
  return {.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size()),
          .least = std::ranges::min(values),
          .most = std::ranges::max(values)};
}

}  // namespace

Result<std::vector<VariantOutcomes>> compare(const std::vector<Variant>& variants,
                                             const CompareOptions& options) {
  RONDO_TRY(check_seeds(variants, options.num_seeds));
  RONDO_ASSIGN(const Traces traces, Traces::load(variants));
  const auto seeds = static_cast<std::size_t>(options.num_seeds);
  std::vector<Job> jobs(variants.size() * seeds);
  std::atomic<std::size_t> next{0};
  constexpr std::int64_t kMostThreads = 256;  // starting one that the system does not grant ends the process
  const auto most = std::clamp<std::int64_t>(std::ssize(jobs), 1, kMostThreads);
  ThreadPool team(static_cast<int>(std::clamp<std::int64_t>(options.num_threads, 1, most)));
  team.run([&](int) {
    for (std::size_t i = next++; i < jobs.size(); i = next++) {
      run_job(variants[i / seeds], traces, i % seeds, options.records_first && i % seeds == 0, jobs[i]);
    }
  });
  std::vector<VariantOutcomes> all;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const std::string& label = variants[i / seeds].label;
    if (i % seeds == 0)
      all.push_back({.label = label, .outcomes = {}, .timeline = std::move(jobs[i].timeline)});
    Result<Outcome>& result = *jobs[i].result;
    if (!result) return tl::unexpected(std::move(result).error().with_context(label));
    all.back().outcomes.push_back(*std::move(result));
  }
  return all;
}

double speed_of(const Outcome& outcome) {
  return outcome.tokens_per_s();
}

double total_of(const Outcome& outcome) {
  return outcome.total_s;
}

double tail_of(const Outcome& outcome) {
  return outcome.tail_s;
}

Spread spread_of(const VariantOutcomes& variant, Figure figure) {
  std::vector<double> values;
  for (const Outcome& outcome : variant.outcomes) values.push_back(figure(outcome));
  return spread_over(values);
}

double mean_of(const VariantOutcomes& variant, Figure figure) {
  return spread_of(variant, figure).mean;
}

std::optional<Spread> ratio_of(const VariantOutcomes& variant, const VariantOutcomes& base, Figure figure) {
  std::vector<double> ratios;
  for (std::size_t s = 0; s < variant.outcomes.size(); ++s) {
    const double of_base = figure(base.outcomes[s]);
    if (of_base == 0.0) return std::nullopt;
    ratios.push_back(figure(variant.outcomes[s]) / of_base);
  }
  return spread_over(ratios);
}

}  // namespace rondo::sim
