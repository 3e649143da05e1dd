// The byte-level alphabet: the printable character that stands for each byte in vocabularies and merges.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rondo::text {

/// Byte-level form of `bytes`: "the" with a space before it becomes "Ġthe".
std::string to_alphabet(std::string_view bytes);

/// The inverse; nothing if a character is outside the alphabet. Precondition: valid UTF-8.
std::optional<std::string> from_alphabet(std::string_view text);

}  // namespace rondo::text
