// DraftGain: how many tokens a step yields, by draft length and by how many siblings one can draft from.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/status.h"

namespace rondo::sim {

/// Requests whose drafts fare alike: by the number of their finished siblings, in steps. Lane 0 … are others,
/// the second half probes.
inline constexpr std::array<std::int32_t, 8> kSiblingSteps = {0, 1, 2, 3, 5, 8, 12, 15};
inline constexpr std::size_t kNumSiblingSteps = kSiblingSteps.size();
inline constexpr std::size_t kNumLanes = 2 * kNumSiblingSteps;
std::size_t lane_of(bool is_probe, std::int32_t finished_siblings);

/// Conditional acceptance of each draft position, by sibling step. Immutable; any thread.
class DraftGain final {
 public:
  struct Config {
    std::vector<double> siblings = {0, 1, 5, 15};
    std::vector<double> accept_length = {1.70, 2.04, 2.32, 2.53};
    std::vector<double> branching_accept_length = {1.77, 2.14, 2.44, 2.69};
    int table_drafts = 8;
    double scale = 1.0;

    template <class V>
    void visit(V& v) {
      v.field("siblings", siblings, "Numbers of siblings to draft from, ascending from 0", {.min = 0});
      v.field("accept_length", accept_length, "Tokens per step at each, the sampled one included",
              {.min = 1});
      v.field("branching_accept_length", branching_accept_length, "The same for branching drafts",
              {.min = 1});
      v.field("table_drafts", table_drafts, "Draft tokens per step at which the tables were measured",
              {.min = 1, .max = 64});
      v.field("scale", scale, "Factor on the tokens beyond the first, for another task", {.above = 0});
    }
    Result<void> validate() const;
  };

  /// From tables: at each number of siblings every position is accepted alike, so often that the table's
  /// length comes out; between the numbers of siblings linear in their logs (plus one).
  explicit DraftGain(const Config& config);
  /// As measured: `linear` holds one row of conditional acceptances by position for each sibling step.
  explicit DraftGain(std::array<std::vector<double>, kNumSiblingSteps> linear);

  /// Expected tokens of a step that drafts `gamma` tokens on `paths` branches.
  double tokens(std::size_t lane, std::int32_t gamma, std::int32_t paths) const;
  /// That the draft token at `position` >= 1 is accepted if those before it are.
  double acceptance(std::size_t lane, std::int32_t position, std::int32_t paths) const;

 private:
  using Rows = std::array<std::vector<double>, kNumSiblingSteps>;
  Rows linear_;
  Rows branching_;
};

}  // namespace rondo::sim
