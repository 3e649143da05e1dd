// Counter-based random numbers (Philox 4x32-10): no state, so nothing to save or to order.
#pragma once

#include <array>
#include <cstdint>

namespace rondo {

/// Philox 4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key);

/// Streams that must never share numbers. The value is part of the key: never renumber.
enum class RngPurpose : std::uint32_t { kRollout = 0, kEval = 1, kShuffle = 2, kInit = 3 };

/// Where in a run a number is drawn. Field widths are 32 bits each.
struct RngCounter {
  std::uint32_t step = 0;      // issue step
  std::uint32_t ordinal = 0;   // the prompt's place in the step's issue order
  std::uint32_t sample = 0;    // sample index in its group
  std::uint32_t position = 0;  // position in the response
};

/// A keyed family of random numbers: key = (seed, purpose).
class Rng final {
 public:
  Rng(std::uint32_t seed, RngPurpose purpose) : key_{seed, static_cast<std::uint32_t>(purpose)} {}

  /// Four independent 32-bit words at `counter`.
  std::array<std::uint32_t, 4> words(RngCounter counter) const;
  /// The first 64 bits at `counter`.
  std::uint64_t bits64(RngCounter counter) const;
  /// An integer in [0, bound), bound > 0, as floor(u * bound / 2^128) of all 128 bits: bias below 2^-64.
  std::uint64_t below(RngCounter counter, std::uint64_t bound) const;

 private:
  std::array<std::uint32_t, 2> key_;
};

}  // namespace rondo
