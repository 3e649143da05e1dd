// UTF-8: walking valid text, and turning any bytes into valid text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rondo::text {

/// One code point and the bytes it takes.
struct CodePoint {
  char32_t value;
  std::size_t size;
};

/// The code point that starts at `at`. Precondition: `at` is on a boundary of valid UTF-8.
inline CodePoint code_point_at(const char* at) {
  const auto byte = [at](int i) { return static_cast<char32_t>(static_cast<unsigned char>(at[i])); };
  if (byte(0) < 0x80) return {byte(0), 1};
  if (byte(0) < 0xE0) return {(byte(0) & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (byte(0) < 0xF0) return {(byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

/// The code point that ends just before `end`. Precondition: [begin, end) is valid UTF-8 and not empty.
CodePoint code_point_before(const char* begin, const char* end);

void append_code_point(char32_t value, std::string& out);

/// Length of the longest valid prefix.
std::size_t valid_prefix(std::string_view bytes);

/// Appends `bytes`, with U+FFFD for each maximal ill-formed part (Unicode 14, section 3.9, "substitution of
/// maximal subparts"): what Python's errors='replace' and Rust's from_utf8_lossy do.
void append_lossy(std::string_view bytes, std::string& out);

/// Length of the longest suffix that more bytes could complete to a code point; 0 to 3.
std::size_t incomplete_suffix(std::string_view bytes);

}  // namespace rondo::text
