#include "text/scanners.h"

#include "text/utf8.h"

namespace rondo::text {
namespace {

struct Char {
  CharClass cls;
  std::size_t size;
};

Char char_at(const CharClass* classes, const char* at) {
  const CodePoint point = code_point_at(at);
  return {classes[point.value], point.size};
}

// The end of the run of `cls` at `at`.
const char* run(const CharClass* classes, const char* at, const char* end, CharClass cls) {
  while (at < end) {
    const Char c = char_at(classes, at);
    if (c.cls != cls) break;
    at += c.size;
  }
  return at;
}

bool is_newline(char byte) {
  return byte == '\r' || byte == '\n';
}

// `\s+(?!\S)|\s+`: white space keeps its last character for what follows, unless it is the only one.
const char* white_space(const CharClass* classes, const char* at, const char* end) {
  const char* last = at;
  const char* p = at;
  while (p < end) {
    const Char c = char_at(classes, p);
    if (c.cls != CharClass::kSpace) break;
    last = p;
    p += c.size;
  }
  return p == end || last == at ? p : last;
}

// `\s*[\r\n]+|\s+(?!\S)|\s+`: up to the last line end, if there is one.
const char* white_space_or_lines(const CharClass* classes, const char* at, const char* end) {
  const char* stop = run(classes, at, end, CharClass::kSpace);
  for (const char* p = stop; p > at; --p)
    if (is_newline(p[-1])) return p;
  return white_space(classes, at, end);
}

// The end of 's, 't, 'm, 'd, 're, 've or 'll at the apostrophe `at`; nullptr if there is none.
const char* contraction(const char* at, const char* end, bool caseless) {
  const auto letter = [&](int i) {
    if (at + i >= end) return '\0';
    const char byte = at[i];
    return caseless && byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + 32) : byte;
  };
  const char first = letter(1);
  const char second = letter(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if ((first == 'r' || first == 'v') && second == 'e') return at + 3;
  if (first == 'l' && second == 'l') return at + 3;
  // U+017F, the long s, is a lower-case form of S.
  if (caseless && first == '\xC5' && second == '\xBF') return at + 3;
  return nullptr;
}

}  // namespace

const char* Gpt2Scanner::next(const char* at, const char* end) const {
  if (*at == '\'')
    if (const char* stop = contraction(at, end, /*caseless=*/false)) return stop;
  if (*at == ' ' && at + 1 < end) {
    const CharClass cls = char_at(classes_, at + 1).cls;
    if (cls != CharClass::kSpace) return run(classes_, at + 1, end, cls);
  }
  const CharClass cls = char_at(classes_, at).cls;
  return cls == CharClass::kSpace ? white_space(classes_, at, end) : run(classes_, at, end, cls);
}

const char* TiktokenScanner::next(const char* at, const char* end) const {
  const Char c = char_at(classes_, at);
  if (c.cls == CharClass::kLetter) return run(classes_, at, end, CharClass::kLetter);
  if (c.cls == CharClass::kNumber) {
    const char* p = at + c.size;
    for (int digits = 1; digits < max_digits_ && p < end; ++digits) {
      const Char digit = char_at(classes_, p);
      if (digit.cls != CharClass::kNumber) break;
      p += digit.size;
    }
    return p;
  }
  if (*at == '\'')
    if (const char* stop = contraction(at, end, /*caseless=*/true)) return stop;
  const char* after = at + c.size;
  const CharClass following = after < end ? char_at(classes_, after).cls : CharClass::kSpace;
  if (following == CharClass::kLetter && !is_newline(*at)) return run(classes_, after, end, following);
  const bool symbols = c.cls == CharClass::kOther || (*at == ' ' && following == CharClass::kOther);
  if (!symbols) return white_space_or_lines(classes_, at, end);
  const char* p = run(classes_, after, end, CharClass::kOther);
  while (p < end && is_newline(*p)) ++p;
  return p;
}

const char* DigitScanner::next(const char* at, const char* end) const {
  const Char c = char_at(classes_, at);
  if (c.cls == CharClass::kNumber)
    return individual_ ? at + c.size : run(classes_, at, end, CharClass::kNumber);
  const char* p = at + c.size;
  while (p < end) {
    const Char other = char_at(classes_, p);
    if (other.cls == CharClass::kNumber) break;
    p += other.size;
  }
  return p;
}

}  // namespace rondo::text
