// Hand-written scanners for the regular expressions that most tokenizers split with.
//
// Each `next(at, end)` returns the end of the piece that starts at `at`: what the first match of the pattern
// would be, for these patterns match somewhere at every position. Precondition: at < end, valid UTF-8.
#pragma once

#include <string_view>

#include "text/unicode.h"

namespace rondo::text {

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// kGpt2Pattern.
class Gpt2Scanner final {
 public:
  const char* next(const char* at, const char* end) const;

 private:
  const CharClass* classes_ = char_classes();
};

/// kLlama3Pattern with max_digits = 3, kQwen2Pattern with max_digits = 1.
class TiktokenScanner final {
 public:
  explicit TiktokenScanner(int max_digits) : max_digits_(max_digits) {}
  const char* next(const char* at, const char* end) const;

 private:
  const CharClass* classes_ = char_classes();
  int max_digits_;
};

/// Numbers apart from the rest; each digit alone if `individual`.
class DigitScanner final {
 public:
  explicit DigitScanner(bool individual) : individual_(individual) {}
  const char* next(const char* at, const char* end) const;

 private:
  const CharClass* classes_ = char_classes();
  bool individual_;
};

}  // namespace rondo::text
