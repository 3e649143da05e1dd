#include "config/byte_size.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <optional>
#include <utility>

namespace rondo::config {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t bytes;
};

constexpr std::array<Unit, 10> kUnits = {{{"", 1},
                                          {"b", 1},
                                          {"kb", 1'000},
                                          {"mb", 1'000'000},
                                          {"gb", 1'000'000'000},
                                          {"tb", 1'000'000'000'000},
                                          {"kib", kKiB},
                                          {"mib", kMiB},
                                          {"gib", kGiB},
                                          {"tib", kGiB * 1024}}};

std::optional<std::int64_t> unit_bytes(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const Unit& unit : kUnits)
    if (unit.name == lower) return unit.bytes;
  return std::nullopt;
}

// A decimal number as an exact fraction digits / scale; nullopt if it is none or has over 18 digits.
std::optional<std::pair<std::int64_t, std::int64_t>> parse_decimal(std::string_view text) {
  std::int64_t digits = 0;
  std::int64_t scale = 1;
  int count = 0;
  bool fraction = false;
  for (const char c : text) {
    if (c == '.' && !fraction && count > 0) {
      fraction = true;
      continue;
    }
    if (c < '0' || c > '9' || ++count > 18) return std::nullopt;
    digits = digits * 10 + (c - '0');
    if (fraction) scale *= 10;
  }
  if (count == 0 || text.back() == '.') return std::nullopt;
  return std::pair(digits, scale);
}

}  // namespace

Result<ByteSize> parse_byte_size(std::string_view text) {
  const std::size_t number_end = std::min(text.find_first_not_of("0123456789."), text.size());
  const auto number = parse_decimal(text.substr(0, number_end));
  std::string_view unit_name = text.substr(number_end);
  unit_name.remove_prefix(std::min(unit_name.find_first_not_of(' '), unit_name.size()));
  const auto unit = unit_bytes(unit_name);
  if (!number || !unit)
    return fail(Code::kInvalidArgument,
                "'{}' is not a byte size; write a number and B, KB, MB, GB, TB or KiB, MiB, GiB, TiB, e.g. "
                "\"2GiB\"",
                text);
  const auto [digits, scale] = *number;
  const __int128 scaled = static_cast<__int128>(digits) * *unit;
  if (scaled % scale != 0) return fail(Code::kInvalidArgument, "'{}' is not a whole number of bytes", text);
  if (scaled / scale > std::numeric_limits<std::int64_t>::max())
    return fail(Code::kInvalidArgument, "'{}' is beyond 2^63 bytes", text);
  return ByteSize{static_cast<std::int64_t>(scaled / scale)};
}

std::string to_string(ByteSize size) {
  constexpr std::array<Unit, 4> kBinary = {
      {{"TiB", kGiB * 1024}, {"GiB", kGiB}, {"MiB", kMiB}, {"KiB", kKiB}}};
  for (const Unit& unit : kBinary)
    if (size.bytes != 0 && size.bytes % unit.bytes == 0)
      return fmt::format("{}{}", size.bytes / unit.bytes, unit.name);
  return fmt::format("{}B", size.bytes);
}

}  // namespace rondo::config
