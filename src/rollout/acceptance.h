// AcceptanceTable: how likely a draft token at each position is accepted, learned while decoding.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rondo::rollout {

/// Which requests share statistics: probes or not, with 0, 1, 2–4, or 5 and more finished siblings.
struct DraftClass {
  bool is_probe = false;
  std::int32_t finished_siblings = 0;
  bool operator==(const DraftClass&) const = default;
};
inline constexpr std::size_t kNumDraftClasses = 8;
/// Others are 0 … 3, probes 4 … 7.
std::size_t draft_class_index(const DraftClass& draft_class);

/// Exponential averages of conditional acceptance: position k counts only where positions 1 … k - 1 were
/// accepted.
///
/// A class starts from the average of all
/// observations, and that from `initial`. Does not choose lengths. One owner thread.
class AcceptanceTable final {
 public:
  struct Config {
    int max_gamma = 8;
    double initial = 0.5;    // before anything was seen
    double memory = 2000.0;  // observations that an average reaches back
  };

  explicit AcceptanceTable(const Config& config);

  /// One request's step: of `drafted` tokens the first `accepted` were.
  void observe(const DraftClass& draft_class, std::int32_t drafted, std::int32_t accepted);

  /// P(k accepted), k = 1 … max_gamma: the product of the conditional probabilities up to k.
  std::vector<double> cumulative(std::size_t draft_class) const;
  /// Conditional probability of position k >= 1.
  double conditional(std::size_t draft_class, std::int32_t position) const;

 private:
  struct Average {
    double value = 0.0;
    double weight = 0.0;  // observations, at most config_.memory
  };
  using Positions = std::vector<Average>;

  void add(Positions& positions, std::int32_t drafted, std::int32_t accepted) const;

  Config config_;
  Positions all_;
  std::array<Positions, kNumDraftClasses> classes_;
};

}  // namespace rondo::rollout
