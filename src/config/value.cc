#include "config/value.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace rondo::config {
namespace {

// A TOML float needs a point or an exponent, or it is an integer.
std::string as_float(std::string digits) {
  const bool is_float = digits.find_first_of(".en") != std::string::npos;  // "inf" and "nan" have an n
  if (!is_float) digits += ".0";
  return digits;
}

template <class T>
std::string joined(const std::vector<T>& values) {
  std::string out = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ", ";
    out += literal(values[i]);
  }
  return out + "]";
}

double read_double(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

template <class T>
std::string text_of(const T& value) {
  return literal(value);
}

std::string text_of(const Opaque& value) {
  return value.description;
}

// At most `limit` bytes, never cutting a UTF-8 sequence.
std::string cut(std::string text, std::size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80) --limit;
  return text.substr(0, limit) + "...";
}

}  // namespace

std::string literal(bool value) {
  return value ? "true" : "false";
}

std::string literal(std::int64_t value) {
  return fmt::format("{}", value);
}

std::string literal(double value) {
  return as_float(fmt::format("{}", value));
}

std::string literal(float value) {
  // The shortest text of a float is read as a double first; print the double where that would round twice.
  std::string shortest = fmt::format("{}", value);
  const bool exact = !std::isfinite(value) || static_cast<float>(read_double(shortest)) == value;
  return exact ? as_float(std::move(shortest)) : literal(static_cast<double>(value));
}

std::string literal(const std::string& value) {
  std::string out = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string literal(const std::vector<std::string>& value) {
  return joined(value);
}

std::string literal(const std::vector<double>& value) {
  return joined(value);
}

std::string shown(const Value& value) {
  constexpr std::size_t kLimit = 60;
  return cut(std::visit([](const auto& held) { return text_of(held); }, value), kLimit);
}

}  // namespace rondo::config
