#include "text/unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "base/check.h"
#include "text/utf8.h"

namespace rondo::text {
namespace {

constexpr char32_t kCodePoints = 0x110000;

CharClass class_of(char32_t value) {
  if (is_white_space(value)) return CharClass::kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(value))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharClass::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharClass::kNumber;
    default:
      return CharClass::kOther;
  }
}

// Below U+0300 every character is its own NFC: nothing there composes without a later combining mark.
bool is_surely_nfc(std::string_view text) {
  for (const char byte : text)
    if (static_cast<unsigned char>(byte) >= 0xCC) return false;
  return true;
}

}  // namespace

const CharClass* char_classes() {
  static const std::vector<CharClass> table = [] {
    std::vector<CharClass> classes(kCodePoints);
    for (char32_t value = 0; value < kCodePoints; ++value) classes[value] = class_of(value);
    return classes;
  }();
  return table.data();
}

bool is_white_space(char32_t value) {
  if (value <= 0x20) return value == 0x20 || (value >= 0x09 && value <= 0x0D);
  if (value < 0x1680) return value == 0x85 || value == 0xA0;
  return value == 0x1680 || (value >= 0x2000 && value <= 0x200A) || value == 0x2028 || value == 0x2029 ||
         value == 0x202F || value == 0x205F || value == 0x3000;
}

bool is_word_char(char32_t value) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(value))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      // Join controls, and the symbols that are Other_Alphabetic: circled and squared letters.
      return value == 0x200C || value == 0x200D || (value >= 0x24B6 && value <= 0x24E9) ||
             (value >= 0x1F130 && value <= 0x1F149) || (value >= 0x1F150 && value <= 0x1F169) ||
             (value >= 0x1F170 && value <= 0x1F189);
  }
}

std::string to_nfc(std::string_view text) {
  if (is_surely_nfc(text)) return std::string(text);
  utf8proc_uint8_t* raw = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
      &raw, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(raw, &std::free);
  if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  RONDO_CHECK_GE(size, 0);
  return {reinterpret_cast<const char*>(raw), static_cast<std::size_t>(size)};
}

}  // namespace rondo::text
