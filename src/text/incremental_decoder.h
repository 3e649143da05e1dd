// IncrementalDecoder: text as tokens arrive, never half a character.
#pragma once

#include <string>

#include "base/id.h"
#include "text/tokenizer.h"

namespace rondo::text {

/// Decodes a growing token sequence piece by piece.
///
/// The pieces of `feed` and `finish`, joined, equal `Tokenizer::decode` of all tokens. One owner thread; the
/// tokenizer outlives the decoder.
class IncrementalDecoder final {
 public:
  IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  /// The text that `token` completes, maybe none. Bytes that could still become a character are held back.
  std::string feed(Token token);

  /// What was held back, as U+FFFD, and a fresh start.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;  // at most 3 bytes between calls
};

}  // namespace rondo::text
