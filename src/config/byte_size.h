// ByteSize: an amount of memory or disk, written "2GiB" in configuration files.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace rondo::config {

inline constexpr std::int64_t kKiB = std::int64_t{1} << 10;
inline constexpr std::int64_t kMiB = std::int64_t{1} << 20;
inline constexpr std::int64_t kGiB = std::int64_t{1} << 30;

/// A number of bytes, never negative. A plain value.
struct ByteSize {
  std::int64_t bytes = 0;
  friend constexpr auto operator<=>(ByteSize, ByteSize) = default;
};

/// Reads `number [unit]`: a decimal number, then B (or nothing), KB, MB, GB, TB (powers of 1000) or KiB, MiB,
/// GiB, TiB (powers of 1024), in any case. The product must be a whole number of bytes below 2^63.
Result<ByteSize> parse_byte_size(std::string_view text);

/// The exact size in its largest binary unit that divides it: "2GiB", "1536MiB", "1000B".
std::string to_string(ByteSize size);

}  // namespace rondo::config
