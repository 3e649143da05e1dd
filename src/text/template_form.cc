#include "text/template_form.h"

#include <algorithm>
#include <vector>

namespace rondo::text {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

// A token inside a tag. Literals hold what they stand for.
struct Lexeme {
  enum class Kind { kName, kLiteral, kSymbol };
  Kind kind;
  std::string text;

  bool is(std::string_view symbol) const { return kind == Kind::kSymbol && text == symbol; }
};
using Lexemes = std::vector<Lexeme>;

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// The position after the literal that starts at `at`; its meaning goes to `value`.
std::size_t read_literal(std::string_view in, std::size_t at, std::string& value) {
  const char quote = in[at++];
  for (; at < in.size() && in[at] != quote; ++at) {
    if (in[at] != '\\' || at + 1 == in.size()) {
      value.push_back(in[at]);
      continue;
    }
    const char escaped = in[++at];
    if (escaped == 'n') {
      value.push_back('\n');
    } else if (escaped == 't') {
      value.push_back('\t');
    } else if (escaped == '\\' || escaped == '\'' || escaped == '"') {
      value.push_back(escaped);
    } else {
      value.append({'\\', escaped});
    }
  }
  return std::min(at + 1, in.size());
}

Lexemes lex(std::string_view in) {
  Lexemes out;
  for (std::size_t at = 0; at < in.size();) {
    if (kBlank.find(in[at]) != std::string_view::npos) {
      ++at;
    } else if (in[at] == '\'' || in[at] == '"') {
      out.push_back({Lexeme::Kind::kLiteral, {}});
      at = read_literal(in, at, out.back().text);
    } else if (is_name_char(in[at])) {
      std::size_t end = at;
      while (end < in.size() && is_name_char(in[end])) ++end;
      out.push_back({Lexeme::Kind::kName, std::string(in.substr(at, end - at))});
      at = end;
    } else {
      out.push_back({Lexeme::Kind::kSymbol, std::string(1, in[at++])});
    }
  }
  return out;
}

// `a.b` as `a["b"]`.
Lexemes without_dots(const Lexemes& in) {
  Lexemes out;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const bool attribute = in[i].is(".") && i + 1 < in.size() && in[i + 1].kind == Lexeme::Kind::kName;
    if (!attribute) {
      out.push_back(in[i]);
      continue;
    }
    out.push_back({Lexeme::Kind::kSymbol, "["});
    out.push_back({Lexeme::Kind::kLiteral, in[++i].text});
    out.push_back({Lexeme::Kind::kSymbol, "]"});
  }
  return out;
}

// The terms of a sum of strings; one term, the whole, if the expression is anything else.
std::vector<Lexemes> terms_of(const Lexemes& in) {
  static constexpr std::string_view kAllowed = "+[]|";
  std::vector<Lexemes> terms(1);
  for (const Lexeme& lexeme : in) {
    const bool word_operator = lexeme.kind == Lexeme::Kind::kName &&
                               (lexeme.text == "if" || lexeme.text == "and" || lexeme.text == "or" ||
                                lexeme.text == "not" || lexeme.text == "in" || lexeme.text == "is");
    const bool other_symbol =
        lexeme.kind == Lexeme::Kind::kSymbol && kAllowed.find(lexeme.text) == std::string_view::npos;
    if (word_operator || other_symbol) return {in};
  }
  int depth = 0;
  for (const Lexeme& lexeme : in) {
    if (lexeme.is("[")) ++depth;
    if (lexeme.is("]")) --depth;
    if (lexeme.is("+") && depth == 0) {
      terms.emplace_back();
    } else {
      terms.back().push_back(lexeme);
    }
  }
  return terms;
}

std::string spell(const Lexemes& lexemes) {
  std::string out;
  for (std::size_t i = 0; i < lexemes.size(); ++i) {
    const bool names_touch =
        i > 0 && lexemes[i].kind == Lexeme::Kind::kName && lexemes[i - 1].kind == Lexeme::Kind::kName;
    if (names_touch) out.push_back(' ');
    const bool literal = lexemes[i].kind == Lexeme::Kind::kLiteral;
    if (literal) out.push_back('"');
    out.append(lexemes[i].text);
    if (literal) out.push_back('"');
  }
  return out;
}

// One tag of the source, or the text before it.
struct Tag {
  char kind = 0;  // '%', '{' or '#'; 0 at the end of the source
  std::size_t begin = 0, end = 0;
  std::string_view inside;  // without the trim marks
  char trim_before = 0, trim_after = 0;
};

std::size_t find_close(std::string_view source, std::size_t at, char kind) {
  const char first = kind == '{' ? '}' : kind;
  while (at + 1 < source.size()) {
    if (source[at] == first && source[at + 1] == '}') return at;
    std::string ignored;
    const bool quote = kind != '#' && (source[at] == '\'' || source[at] == '"');
    at = quote ? read_literal(source, at, ignored) : at + 1;
  }
  return std::string_view::npos;
}

Tag next_tag(std::string_view source, std::size_t from) {
  const Tag none{.kind = 0, .begin = source.size(), .end = source.size(), .inside = {}};
  std::size_t open = source.find('{', from);
  const auto opens_tag = [&] {
    return open + 1 < source.size() &&
           std::string_view("%{#").find(source[open + 1]) != std::string_view::npos;
  };
  while (open != std::string_view::npos && !opens_tag()) open = source.find('{', open + 1);
  if (open == std::string_view::npos) return none;
  const char kind = source[open + 1];
  const std::size_t close = find_close(source, open + 2, kind);
  if (close == std::string_view::npos) return none;
  Tag tag{.kind = kind, .begin = open, .end = close + 2, .inside = source.substr(open + 2, close - open - 2)};
  if (tag.inside.starts_with('-') || tag.inside.starts_with('+')) {
    tag.trim_before = tag.inside.front();
    tag.inside.remove_prefix(1);
  }
  if (tag.inside.ends_with('-')) {
    tag.trim_after = '-';
    tag.inside.remove_suffix(1);
  }
  return tag;
}

// The text between two tags as Jinja prints it. A text at the start of the source begins a line.
std::string_view trimmed(std::string_view text, const Tag& before, const Tag& after) {
  if (after.kind != 0 && after.trim_before == '-') {
    text = text.substr(0, text.find_last_not_of(kBlank) + 1);
  } else if ((after.kind == '%' || after.kind == '#') && after.trim_before != '+') {
    const std::size_t last = text.find_last_not_of(" \t");
    const bool whole = last == std::string_view::npos;
    if (whole ? before.kind == 0 : text[last] == '\n') text = text.substr(0, whole ? 0 : last + 1);
  }
  if (before.trim_after == '-') {
    text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  } else if ((before.kind == '%' || before.kind == '#') && text.starts_with('\n')) {
    text.remove_prefix(1);
  }
  return text;
}

void append_tag(const Tag& tag, std::string& form) {
  if (tag.kind == '#') return;
  const Lexemes lexemes = without_dots(lex(tag.inside));
  if (tag.kind == '%') {
    form.append(kFormBlock + spell(lexemes) + kFormClose);
    return;
  }
  for (const Lexemes& term : terms_of(lexemes)) {
    const bool literal = term.size() == 1 && term[0].kind == Lexeme::Kind::kLiteral;
    form.append(literal ? term[0].text : kFormValue + spell(term) + kFormClose);
  }
}

}  // namespace

std::string template_form(std::string_view source) {
  static const std::string kGuard = std::string("\x01if not add_generation_prompt is defined\x03") +
                                    "\x01set add_generation_prompt=false\x03\x01" + "endif\x03";
  if (source.ends_with('\n')) source.remove_suffix(1);
  std::string form;
  Tag before;
  while (true) {
    const Tag tag = next_tag(source, before.end);
    form.append(trimmed(source.substr(before.end, tag.begin - before.end), before, tag));
    if (tag.kind == 0) break;
    append_tag(tag, form);
    before = tag;
  }
  if (form.starts_with(kGuard)) form.erase(0, kGuard.size());
  return form;
}

}  // namespace rondo::text
