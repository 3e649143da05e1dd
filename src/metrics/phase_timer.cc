#include "metrics/phase_timer.h"

#include "base/check.h"

namespace rondo::metrics {

PhaseTimer::Scope::Scope(PhaseTimer& timer, std::string_view phase)
    : timer_(timer), phase_(timer.index_of(phase)), begin_ns_(timer.clock_.now_ns()) {
  ++timer_.open_scopes_;
}

PhaseTimer::Scope::~Scope() {
  timer_.phases_[phase_].total_ns += timer_.clock_.now_ns() - begin_ns_;
  --timer_.open_scopes_;
}

double PhaseTimer::seconds(std::string_view phase) const {
  for (const Phase& known : phases_)
    if (known.name == phase) return static_cast<double>(known.total_ns) * 1e-9;
  return 0;
}

void PhaseTimer::add_to(StepRecord& record, std::string_view prefix) const {
  for (const Phase& phase : phases_)
    record.set(std::string(prefix) + phase.name, static_cast<double>(phase.total_ns) * 1e-9,
               Nature::kMeasured);
}

void PhaseTimer::reset() {
  RONDO_CHECK_EQ(open_scopes_, 0);
  phases_.clear();
}

std::size_t PhaseTimer::index_of(std::string_view phase) {
  for (std::size_t i = 0; i < phases_.size(); ++i)
    if (phases_[i].name == phase) return i;
  phases_.push_back({std::string(phase)});
  return phases_.size() - 1;
}

}  // namespace rondo::metrics
