// Sibling sequences that share phrases, for benchmarks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/id.h"

namespace rondo::suffix {

/// What the responses of one group look like to a suffix tree: each puts together phrases from a common
/// stock, the popular ones more often, leaves one early now and then, and has tokens of its own in between.
struct SiblingWorkload {
  std::uint32_t seed = 1;
  std::int32_t num_sequences = 64;
  std::int32_t num_tokens = 2000;  // of each
  std::int32_t vocabulary = 32000;
  std::int32_t num_phrases = 400;
  std::int32_t max_phrase = 40;
  double noise = 0.15;  // share of steps that are a token of one's own
  double leave = 0.02;  // chance to leave a phrase, per token

  /// The sequences, the same on every machine.
  std::vector<std::vector<Token>> sequences() const;
};

}  // namespace rondo::suffix
