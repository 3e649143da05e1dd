// Regular expressions of tokenizers: Oniguruma's syntax, as far as tokenizer.json files use it, run by PCRE2.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace rondo::text {

/// A compiled pattern that cuts text at its matches.
///
/// Accepts literals, classes, groups, look-around, quantifiers and `\s \S \d \D \p{…} \P{…}`; `\s` is the
/// property White_Space. Anything that the two engines read differently (`\w`, `\b`, `^`, `$`, nested
/// classes, …) is kUnsupported. Immutable; any thread.
class Pattern final {
 public:
  static Result<Pattern> compile(std::string_view regex);
  /// Matches `text` itself.
  static Result<Pattern> literal(std::string_view text);

  Pattern(Pattern&&) noexcept = default;
  Pattern& operator=(Pattern&&) noexcept = default;

  /// Calls `sink` with each match and each stretch between matches, in order; never with an empty piece.
  /// Precondition: valid UTF-8. Throws std::bad_alloc where matching exceeds its memory or step limits.
  void split(std::string_view text, const std::function<void(std::string_view)>& sink) const;

 private:
  struct Deleter {
    void operator()(void* code) const;
  };
  using CodePtr = std::unique_ptr<void, Deleter>;  // pcre2_code, whose header stays out of this one

  explicit Pattern(CodePtr code) : code_(std::move(code)) {}
  static Result<Pattern> compile_pcre2(const std::string& pattern, unsigned options);

  CodePtr code_;
};

/// The same language in PCRE2's syntax, or kUnsupported with the construct that is not known to agree.
Result<std::string> translate_to_pcre2(std::string_view regex);

}  // namespace rondo::text
