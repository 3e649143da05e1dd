#include "reward/number.h"

#include <algorithm>

namespace rondo::reward {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

struct Number {
  std::size_t begin = 0;  // of the sign, if there is one
  std::size_t end = 0;
  bool negative = false;
  std::string_view whole;     // digits and commas before the point
  std::string_view fraction;  // digits behind it
};

std::size_t digits_end(std::string_view text, std::size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

// End of the digits and thousands groups that start at `at`.
std::size_t whole_end(std::string_view text, std::size_t at) {
  std::size_t end = digits_end(text, at);
  if (end - at > 3) return end;  // "1234,567" is two numbers
  while (end > at && end < text.size() && text[end] == ',' && digits_end(text, end + 1) == end + 4) end += 4;
  return end;
}

bool is_sign(std::string_view text, std::size_t at) {
  if (text[at] != '-' && text[at] != '+') return false;
  if (at == 0) return true;
  const char before = text[at - 1];
  return !is_digit(before) && !is_letter(before) && before != ')' && before != ']' && before != '}';
}

// The number whose first digit, or point, is at `at`; nullopt if none starts there.
std::optional<Number> number_at(std::string_view text, std::size_t at) {
  Number number;
  const std::size_t point = whole_end(text, at);
  number.whole = text.substr(at, point - at);
  number.end = point;
  if (point < text.size() && text[point] == '.') {
    const std::size_t end = digits_end(text, point + 1);
    if (end > point + 1) {
      number.fraction = text.substr(point + 1, end - point - 1);
      number.end = end;
    }
  }
  if (number.end == at) return std::nullopt;
  if (number.whole.empty() && at > 0 && is_digit(text[at - 1]))
    return std::nullopt;  // the 2nd point of 1.2.3
  number.begin = at > 0 && is_sign(text, at - 1) ? at - 1 : at;
  number.negative = text[number.begin] == '-';
  return number;
}

std::optional<Number> find_number(std::string_view text, std::size_t from) {
  for (std::size_t at = from; at < text.size(); ++at) {
    if (!is_digit(text[at]) && text[at] != '.') continue;
    if (auto number = number_at(text, at)) return number;
  }
  return std::nullopt;
}

std::string canonical(const Number& number) {
  std::string digits;
  for (const char c : number.whole) {
    if (c != ',' && (c != '0' || !digits.empty())) digits.push_back(c);
  }
  if (digits.empty()) digits.push_back('0');
  const std::string_view fraction = number.fraction.substr(0, number.fraction.find_last_not_of('0') + 1);
  if (!fraction.empty()) digits.append(".").append(fraction);
  if (number.negative && digits != "0") digits.insert(digits.begin(), '-');
  return digits;
}

}  // namespace

std::optional<std::string> last_number(std::string_view text) {
  std::optional<Number> last;
  for (auto number = find_number(text, 0); number; number = find_number(text, number->end)) last = number;
  if (!last) return std::nullopt;
  return canonical(*last);
}

std::optional<std::string> whole_number(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  const std::size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  text = text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
  const auto number = find_number(text, 0);
  if (!number || number->begin != 0 || number->end != text.size()) return std::nullopt;
  return canonical(*number);
}

}  // namespace rondo::reward
