// Cuts text into the words that byte-pair encoding works on.
#pragma once

#include <functional>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "text/pattern.h"
#include "text/scanners.h"
#include "text/tokenizer_spec.h"

namespace rondo::text {

/// A pipeline of steps, each of which cuts the pieces of the one before.
///
/// Does not map bytes to the byte-level alphabet: pieces are bytes of the text. Immutable; any thread.
class PreTokenizer final {
 public:
  using Sink = std::function<void(std::string_view)>;
  /// kRegexOnly runs every pattern through PCRE2, to compare with the scanners. Never faster.
  enum class Engine { kScanners, kRegexOnly };

  static Result<PreTokenizer> create(const std::vector<PreTokenizerStep>& steps,
                                     Engine engine = Engine::kScanners);

  /// Calls `sink` with each word in order; a word is valid only during its call.
  void split(std::string_view text, const Sink& sink) const { split_from(0, text, sink); }

 private:
  struct PrefixSpace {};
  using Cutter = std::variant<Gpt2Scanner, TiktokenScanner, DigitScanner, Pattern, PrefixSpace>;

  static Result<Cutter> cutter_of(const SplitStep& step, Engine engine);
  void split_from(std::size_t step, std::string_view text, const Sink& sink) const;
  template <class Scanner>
  void scan(const Scanner& scanner, std::size_t step, std::string_view text, const Sink& sink) const;

  std::vector<Cutter> cutters_;
};

}  // namespace rondo::text
