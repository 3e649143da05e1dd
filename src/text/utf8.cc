#include "text/utf8.h"

#include <algorithm>
#include <cstring>

namespace rondo::text {
namespace {

enum class Form { kValid, kInvalid, kIncomplete };

// The code point, or the maximal ill-formed part, at the start of some bytes.
struct Sequence {
  Form form;
  std::size_t size;
};

// Unicode 14, table 3-7: the lead byte gives the length and narrows the range of the second byte.
struct Lead {
  std::size_t size;
  unsigned char second_min, second_max;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// Precondition: bytes is not empty.
Sequence first_sequence(std::string_view bytes) {
  const Lead lead = lead_of(static_cast<unsigned char>(bytes[0]));
  if (lead.size == 0) return {Form::kInvalid, 1};
  for (std::size_t i = 1; i < lead.size; ++i) {
    if (i == bytes.size()) return {Form::kIncomplete, i};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const unsigned char low = i == 1 ? lead.second_min : 0x80;
    const unsigned char high = i == 1 ? lead.second_max : 0xBF;
    if (byte < low || byte > high) return {Form::kInvalid, i};
  }
  return {Form::kValid, lead.size};
}

std::size_t ascii_prefix(std::string_view bytes) {
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    if ((word & 0x8080808080808080ULL) != 0) break;
  }
  while (i < bytes.size() && static_cast<unsigned char>(bytes[i]) < 0x80) ++i;
  return i;
}

}  // namespace

CodePoint code_point_before(const char* begin, const char* end) {
  const char* at = end - 1;
  while (at > begin && (static_cast<unsigned char>(*at) & 0xC0) == 0x80) --at;
  return code_point_at(at);
}

void append_code_point(char32_t value, std::string& out) {
  const auto tail = [&](int shift) { out.push_back(static_cast<char>(0x80 | (value >> shift & 0x3F))); };
  if (value < 0x80) {
    out.push_back(static_cast<char>(value));
  } else if (value < 0x800) {
    out.push_back(static_cast<char>(0xC0 | value >> 6));
    tail(0);
  } else if (value < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | value >> 12));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xF0 | value >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::size_t valid_prefix(std::string_view bytes) {
  std::size_t at = 0;
  while (true) {
    at += ascii_prefix(bytes.substr(at));
    if (at == bytes.size()) return at;
    const Sequence sequence = first_sequence(bytes.substr(at));
    if (sequence.form != Form::kValid) return at;
    at += sequence.size;
  }
}

void append_lossy(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const std::size_t valid = valid_prefix(bytes);
    out.append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) return;
    append_code_point(0xFFFD, out);
    bytes.remove_prefix(first_sequence(bytes).size);
  }
}

std::size_t incomplete_suffix(std::string_view bytes) {
  for (std::size_t size = std::min<std::size_t>(3, bytes.size()); size > 0; --size) {
    const Sequence sequence = first_sequence(bytes.substr(bytes.size() - size));
    if (sequence.form == Form::kIncomplete && sequence.size == size) return size;
  }
  return 0;
}

}  // namespace rondo::text
