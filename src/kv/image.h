// Image: the KV of some blocks of a sequence, outside any pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/checksum.h"
#include "kv/block_pool.h"
#include "kv/image_buffer.h"

namespace rondo::kv {

/// Blocks [first_block, first_block + num_blocks) of a sequence, bit for bit, of which the positions below
/// `num_tokens` are filled. What a byte means is the engine's business. Immutable once it is handed out, so
/// it may be shared between threads and instances.
struct Image {
  std::int32_t first_block = 0;
  std::int32_t num_blocks = 0;
  std::int32_t num_tokens = 0;  // of the sequence, from position 0
  ImageBuffer bytes;
  std::optional<std::uint64_t> sum = {};  // of the bytes; none while they stay in this process's memory

  std::int32_t end_block() const { return first_block + num_blocks; }
  void seal() { sum = checksum(bytes.span()); }
  /// Whether the bytes are those that were sealed, if they were.
  bool intact() const { return !sum || *sum == checksum(bytes.span()); }
  /// The bytes of block `b` of the sequence.
  std::span<const std::byte> block(std::int32_t b) const {
    const std::size_t size = bytes.size() / static_cast<std::size_t>(num_blocks);
    return bytes.span().subspan(static_cast<std::size_t>(b - first_block) * size, size);
  }
};

}  // namespace rondo::kv
