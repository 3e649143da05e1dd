// PhaseTimer: seconds spent in each named phase of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "metrics/step_record.h"

namespace rondo::metrics {

/// Adds up the time between a scope's construction and end under its phase's name. Phases may nest and
/// repeat; an outer one includes the inner. Borrows the clock. One owner thread.
///
///   { const auto scope = timer.measure("gen"); rollout(); }
///   timer.add_to(record);   // timing_s/gen, measured
class PhaseTimer final {
 public:
  /// Counts until it is destroyed; must not outlive its timer.
  class [[nodiscard]] Scope final {
   public:
    Scope(PhaseTimer& timer, std::string_view phase);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PhaseTimer& timer_;
    std::size_t phase_;
    std::int64_t begin_ns_;
  };

  explicit PhaseTimer(const Clock& clock) : clock_(clock) {}
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

  Scope measure(std::string_view phase) { return {*this, phase}; }
  /// The phase's seconds so far, ended scopes only; 0 for one never measured.
  double seconds(std::string_view phase) const;
  /// Sets prefix + phase for every phase since the last reset, in order of first use, as measured.
  void add_to(StepRecord& record, std::string_view prefix = "timing_s/") const;
  /// Forgets all phases. No scope may be open.
  void reset();

 private:
  struct Phase {
    std::string name;
    std::int64_t total_ns = 0;
  };
  // The index of a phase, added where it is new.
  std::size_t index_of(std::string_view phase);

  const Clock& clock_;
  std::vector<Phase> phases_;
  int open_scopes_ = 0;
};

}  // namespace rondo::metrics
