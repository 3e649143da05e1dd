#include "text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>

#include "text/utf8.h"

namespace rondo::text {
namespace {

// White_Space and its complement, as the inside of a class.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNonSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

// Walks a pattern once and writes what PCRE2 shall read.
class Translator final {
 public:
  explicit Translator(std::string_view regex) : in_(regex) {}

  Result<std::string> run() {
    while (at_ < in_.size()) RONDO_TRY(in_class_ ? class_item() : item());
    if (in_class_) return unsupported("a class without its ']'");
    return std::move(out_);
  }

 private:
  tl::unexpected<Status> unsupported(std::string_view what) const {
    return fail(Code::kUnsupported, "the regular expression \"{}\" uses {} at byte {}", in_, what, at_);
  }

  char peek(std::size_t ahead) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }

  void copy(std::size_t count) {
    out_.append(in_.substr(at_, count));
    at_ += count;
  }

  Result<void> item() {
    switch (in_[at_]) {
      case '\\':
        return escape();
      case '[':
        in_class_ = true;
        copy(peek(1) == '^' ? 2 : 1);
        if (peek(0) == ']') return unsupported("an empty class");
        return {};
      case '(':
        return group();
      case '^':
      case '$':
        return unsupported("an anchor");
      case '.':
        out_.append("[^\\n]");
        ++at_;
        return {};
      case '{':
        if (peek(1) == ',') return unsupported("a repeat without a lower bound");
        break;
      case '}':
        if (peek(1) == '+' || peek(1) == '?') return unsupported("a possessive or lazy counted repeat");
        break;
      default:
        break;
    }
    copy(1);
    return {};
  }

  Result<void> group() {
    static constexpr std::array<std::string_view, 7> kKnown = {"(?:",  "(?=",  "(?!", "(?>",
                                                               "(?<=", "(?<!", "(?i:"};
    if (peek(1) == '*') return unsupported("a verb");
    if (peek(1) != '?') {
      copy(1);
      return {};
    }
    for (const std::string_view open : kKnown) {
      if (in_.substr(at_, open.size()) != open) continue;
      copy(open.size());
      return {};
    }
    return unsupported("a group of an unknown kind");
  }

  Result<void> class_item() {
    switch (in_[at_]) {
      case '\\':
        return escape();
      case '[':
        return unsupported("a class inside a class");
      case '&':
        if (peek(1) == '&') return unsupported("an intersection of classes");
        break;
      case ']':
        in_class_ = false;
        break;
      default:
        break;
    }
    copy(1);
    return {};
  }

  void spaces(std::string_view set) {
    if (in_class_) {
      out_.append(set);
    } else {
      out_.append("[").append(set).append("]");
    }
    at_ += 2;
  }

  Result<void> escape() {
    const char next = peek(1);
    if (next == 's' || next == 'S') {
      spaces(next == 's' ? kSpaces : kNonSpaces);
      return {};
    }
    if (next == 'p' || next == 'P') {
      const std::size_t close = in_.find('}', at_);
      if (peek(2) != '{' || close == std::string_view::npos) return unsupported("a property without braces");
      copy(close + 1 - at_);
      return {};
    }
    const bool alphanumeric = (next >= '0' && next <= '9') || (next >= 'A' && next <= 'Z') ||
                              (next >= 'a' && next <= 'z') || next == '\0';
    if (alphanumeric && std::string_view("dDrntf").find(next) == std::string_view::npos)
      return unsupported("an escape whose meaning differs between engines");
    copy(2);
    return {};
  }

  std::string_view in_;
  std::string out_;
  std::size_t at_ = 0;
  bool in_class_ = false;
};

using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;
using MatchContext = std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>;

// One text being matched. JIT code runs on 32 KiB of stack; where that is too little, the interpreter, which
// takes its memory from the heap, does the match again.
class Matcher final {
 public:
  Matcher(const pcre2_code* code, std::string_view text)
      : code_(code),
        text_(text),
        data_(pcre2_match_data_create(1, nullptr), &pcre2_match_data_free),
        context_(pcre2_match_context_create(nullptr), &pcre2_match_context_free) {
    if (!data_ || !context_) throw std::bad_alloc();
    pcre2_set_match_limit(context_.get(), 1U << 30);
  }

  // The first match that starts at `from` or later and is not empty; size 0 if there is none.
  std::string_view next(std::size_t from) {
    int count = attempt(from, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY);
    if (count == PCRE2_ERROR_JIT_STACKLIMIT)
      count = attempt(from, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | PCRE2_NO_JIT);
    if (count == PCRE2_ERROR_NOMATCH) return {};
    if (count < 0) throw std::bad_alloc();
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data_.get());
    return text_.substr(bounds[0], bounds[1] - bounds[0]);
  }

 private:
  int attempt(std::size_t from, std::uint32_t options) {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), from, options,
                       data_.get(), context_.get());
  }

  const pcre2_code* code_;
  std::string_view text_;
  MatchData data_;
  MatchContext context_;
};

}  // namespace

Result<std::string> translate_to_pcre2(std::string_view regex) {
  return Translator(regex).run();
}

void Pattern::Deleter::operator()(void* code) const {
  pcre2_code_free(static_cast<pcre2_code*>(code));
}

Result<Pattern> Pattern::compile_pcre2(const std::string& pattern, unsigned options) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  CodePtr code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                             options | PCRE2_UTF, &error, &offset, nullptr));
  if (!code) {
    std::array<PCRE2_UCHAR, 256> message{};
    pcre2_get_error_message(error, message.data(), message.size());
    return fail(Code::kUnsupported, "the regular expression \"{}\" does not compile: {}", pattern,
                reinterpret_cast<const char*>(message.data()));
  }
  // Without JIT (not built in, or no executable memory) pcre2_match interprets: the same matches, slower.
  (void)pcre2_jit_compile(static_cast<pcre2_code*>(code.get()), PCRE2_JIT_COMPLETE);
  return Pattern(std::move(code));
}

Result<Pattern> Pattern::compile(std::string_view regex) {
  RONDO_ASSIGN(const std::string translated, translate_to_pcre2(regex));
  return compile_pcre2(translated, PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C);
}

Result<Pattern> Pattern::literal(std::string_view text) {
  return compile_pcre2(std::string(text), PCRE2_LITERAL);
}

void Pattern::split(std::string_view text, const std::function<void(std::string_view)>& sink) const {
  Matcher matcher(static_cast<const pcre2_code*>(code_.get()), text);
  std::size_t at = 0;
  while (at < text.size()) {
    const std::string_view match = matcher.next(at);
    if (match.empty()) break;
    const auto begin = static_cast<std::size_t>(match.data() - text.data());
    if (begin > at) sink(text.substr(at, begin - at));
    sink(match);
    at = begin + match.size();
  }
  if (at < text.size()) sink(text.substr(at));
}

}  // namespace rondo::text
