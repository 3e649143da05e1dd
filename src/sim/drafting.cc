#include "sim/drafting.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rondo::sim {
namespace {

constexpr double kStepsPerPlan = 64.0;
constexpr double kChange = 0.05;           // of the number running, after which a plan is old
constexpr std::int32_t kObservations = 8;  // per lane and plan

bool is_probe(std::size_t lane) {
  return lane >= kNumSiblingSteps;
}

rollout::DraftClass class_of(std::size_t lane) {
  return {.is_probe = is_probe(lane), .finished_siblings = kSiblingSteps[lane % kNumSiblingSteps]};
}

std::int32_t gamma_of(const rollout::DraftLengths& lengths, std::size_t lane) {
  return is_probe(lane) ? lengths.probe : lengths.other;
}

}  // namespace

Drafting::Drafting(const rollout::DraftLengthPlanner::Config& config, const rollout::StepCost& cost,
                   const DraftGain& gain, std::uint64_t seed)
    : planner_(config, cost), gain_(&gain), random_(seed) {
  rates_.fill(1.0);
}

bool Drafting::is_due(std::int32_t running) const {
  return steps_since_ >= kStepsPerPlan ||
         std::abs(running - planned_for_) > kChange * static_cast<double>(planned_for_);
}

bool Drafting::replan(const LaneCounts& running, std::int32_t mean_context, double steps,
                      std::vector<rollout::TimedInput>* log) {
  steps_since_ += steps;
  const std::int32_t total = std::accumulate(running.begin(), running.end(), 0);
  if (total == 0 || !is_due(total)) return false;
  rollout::DraftLoad load{.running = {}, .mean_context = mean_context};
  for (std::size_t lane = 0; lane < kNumLanes; ++lane) {
    load.running[rollout::draft_class_index(class_of(lane))] += running[lane];
  }
  const rollout::DraftLengths planned = planner_.plan(load);
  // Where drafts do not pay, one step explores; the others go without.
  const bool explores = planner_.uniform_length(load) == 0;
  planner_.commit(load, planned);
  if (log != nullptr) log->push_back({.time_ns = 0, .input = rollout::DraftPlanned{load, planned}});
  observe(running, planned, log);
  lengths_ = explores ? rollout::DraftLengths{} : planned;
  for (std::size_t lane = 0; lane < kNumLanes; ++lane) {
    rates_[lane] = gain_->tokens(lane, gamma_of(lengths_, lane), lengths_.paths);
  }
  planned_for_ = total;
  steps_since_ = 0.0;
  return true;
}

double Drafting::rows(const LaneCounts& running) const {
  double rows = 0.0;
  for (std::size_t lane = 0; lane < kNumLanes; ++lane) {
    rows += static_cast<double>(running[lane]) * (1 + gamma_of(lengths_, lane));
  }
  return rows;
}

void Drafting::observe(const LaneCounts& running, const rollout::DraftLengths& lengths,
                       std::vector<rollout::TimedInput>* log) {
  for (std::size_t lane = 0; lane < kNumLanes; ++lane) {
    const std::int32_t gamma = gamma_of(lengths, lane);
    if (gamma == 0) continue;
    for (std::int32_t i = 0; i < std::min(running[lane], kObservations); ++i) {
      const std::int32_t accepted = draw_accepted(lane, gamma);
      planner_.observe(class_of(lane), gamma, accepted);
      if (log != nullptr) {
        log->push_back({.time_ns = 0, .input = rollout::DraftSeen{class_of(lane), gamma, accepted}});
      }
    }
  }
}

std::int32_t Drafting::draw_accepted(std::size_t lane, std::int32_t gamma) {
  std::int32_t accepted = 0;
  while (accepted < gamma && uniform() < gain_->acceptance(lane, accepted + 1, lengths_.paths)) ++accepted;
  return accepted;
}

// splitmix64.
double Drafting::uniform() {
  std::uint64_t z = random_ += 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1.0p-53;
}

}  // namespace rondo::sim
