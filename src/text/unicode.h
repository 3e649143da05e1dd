// Unicode properties that tokenizers split on, and NFC.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rondo::text {

/// A partition of all code points. kSpace is the property White_Space; kLetter and kNumber are the general
/// categories L and N; all else, unassigned code points too, is kOther.
enum class CharClass : std::uint8_t { kOther, kLetter, kNumber, kSpace };

/// The class of every code point, indexed by its value. Built on first use; immutable; any thread.
const CharClass* char_classes();

/// The property White_Space, which is what `\s` means to tokenizers: without U+180E.
bool is_white_space(char32_t value);

/// `\w` of Unicode TR18: alphabetic, mark, decimal number, connector punctuation or join control.
bool is_word_char(char32_t value);

/// Normalisation form C of valid UTF-8.
std::string to_nfc(std::string_view text);

}  // namespace rondo::text
