// checksum(): tells damaged bytes from whole ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rondo {

/// XXH3 of the bytes, 64 bits. Not for adversaries. Any thread.
std::uint64_t checksum(std::span<const std::byte> bytes);

}  // namespace rondo
