#include "reward/gsm8k.h"

#include <algorithm>

namespace rondo::reward {
namespace {

constexpr int kWindow = 300;  // characters at the end of a response that are looked at
constexpr std::string_view kMark = "#### ";
constexpr std::string_view kNumberCharacters = "0123456789.,";

// The last `count` code points; a byte that continues a character does not start one.
std::string_view last_characters(std::string_view text, int count) {
  std::size_t begin = text.size();
  while (begin > 0 && count > 0) {
    --begin;
    if ((static_cast<unsigned char>(text[begin]) & 0xC0u) != 0x80u) --count;
  }
  return text.substr(begin);
}

}  // namespace

std::optional<std::string> gsm8k_answer(std::string_view response) {
  const std::string_view text = last_characters(response, kWindow);
  for (std::size_t mark = text.rfind(kMark); mark != std::string_view::npos;
       mark = mark == 0 ? std::string_view::npos : text.rfind(kMark, mark - 1)) {
    const std::string_view rest = text.substr(mark + kMark.size());
    const std::size_t begin = rest.starts_with('-') ? 1 : 0;
    const std::size_t end = std::min(rest.find_first_not_of(kNumberCharacters, begin), rest.size());
    if (end <= begin) continue;
    std::string answer(rest.substr(0, end));
    std::erase(answer, ',');
    return answer;
  }
  return std::nullopt;
}

std::optional<std::string> gsm8k_flexible_answer(std::string_view response) {
  std::string_view text = last_characters(response, kWindow);
  std::optional<std::string> answer;
  while (true) {
    const std::size_t last = text.find_last_of(kNumberCharacters);
    if (last == std::string_view::npos) return answer;
    const std::size_t before = text.find_last_not_of(kNumberCharacters, last);
    std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
    if (begin > 0 && text[begin - 1] == '-') --begin;
    answer = std::string(text.substr(begin, last + 1 - begin));
    if (*answer != ".") return answer;
    text = text.substr(0, begin);
  }
}

}  // namespace rondo::reward
