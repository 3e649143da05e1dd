#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace rondo::text {
namespace {

// Bytes that are printable in Latin-1 stand for themselves; the others take U+0100, U+0101, … in byte order.
constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}
constexpr unsigned kAlphabetEnd = 0x100 + 68;

struct Alphabet {
  std::array<char32_t, 256> to_char{};
  std::array<std::int16_t, kAlphabetEnd> to_byte{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.to_byte.fill(-1);
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const unsigned value = stands_for_itself(byte) ? byte : next++;
    alphabet.to_char[byte] = static_cast<char32_t>(value);
    alphabet.to_byte[value] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}
constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::string to_alphabet(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_code_point(kAlphabet.to_char[static_cast<unsigned char>(byte)], out);
  return out;
}

std::optional<std::string> from_alphabet(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text.data() + at);
    if (point.value >= kAlphabetEnd || kAlphabet.to_byte[point.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.to_byte[point.value]));
    at += point.size;
  }
  return bytes;
}

}  // namespace rondo::text
