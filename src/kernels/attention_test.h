// What the tests and the benchmark of attention share: a paged cache of random contents.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/float16.h"
#include "kernels/op_table.h"

namespace rondo::kernels {

struct AttentionShape {
  DType dtype = DType::kF16;
  std::int32_t head_dim = 64;
  std::int32_t kv_heads = 1;
  std::int32_t group = 1;

  std::int32_t heads() const { return kv_heads * group; }
  std::int64_t q_width() const { return std::int64_t{heads()} * head_dim; }
  std::int64_t kv_width() const { return std::int64_t{kv_heads} * head_dim; }
};

/// Blocks for one layer, every slot filled with random finite values; the ids are dealt out in random order.
class PagedCache final {
 public:
  PagedCache(const AttentionShape& shape, std::int32_t blocks, std::uint32_t seed) : random_(seed) {
    view_.dtype = shape.dtype;
    view_.kv_heads = shape.kv_heads;
    view_.head_dim = shape.head_dim;
    view_.key_offset = kMargin;
    view_.value_offset = kMargin + view_.side_bytes();
    view_.block_stride = 2 * kMargin + 2 * view_.side_bytes();
    storage_ = AlignedBuffer<std::byte>(view_.block_stride * static_cast<std::size_t>(blocks));
    view_.base = storage_.data();
    free_.resize(static_cast<std::size_t>(blocks));
    std::iota(free_.begin(), free_.end(), 0);
    std::shuffle(free_.begin(), free_.end(), random_);
    for (std::int32_t block = 0; block < blocks; ++block) fill(block);
  }

  const KvView& view() const { return view_; }
  std::span<const std::byte> bytes() const { return storage_.span(); }

  std::int32_t allocate() {
    const std::int32_t block = free_.back();
    free_.pop_back();
    return block;
  }
  /// A table for `positions` positions that starts with the blocks of `prefix`.
  std::vector<std::int32_t> table(std::int32_t positions, std::vector<std::int32_t> prefix = {}) {
    while (static_cast<std::int32_t>(prefix.size()) * kAttentionBlock < positions)
      prefix.push_back(allocate());
    return prefix;
  }
  /// Gives new random contents to slots [first, 64) of a block.
  void refill(std::int32_t block, std::int32_t first) {
    for (std::int32_t head = 0; head < view_.kv_heads; ++head) {
      for (std::int32_t d = 0; d < view_.head_dim; ++d) {
        for (std::int32_t slot = first; slot < kAttentionBlock; ++slot) {
          put(view_.keys(block, head), d * kAttentionBlock + slot);
          put(view_.values(block, head), slot * view_.head_dim + d);
        }
      }
    }
  }
  /// Copies slots [0, count) of every head.
  void copy(std::int32_t from, std::int32_t to, std::int32_t count) {
    for (std::int32_t head = 0; head < view_.kv_heads; ++head) {
      for (std::int32_t d = 0; d < view_.head_dim; ++d) {
        for (std::int32_t slot = 0; slot < count; ++slot) {
          move(view_.keys(from, head), view_.keys(to, head), d * kAttentionBlock + slot);
          move(view_.values(from, head), view_.values(to, head), slot * view_.head_dim + d);
        }
      }
    }
  }
  double key(std::int32_t block, std::int32_t head, std::int64_t slot, std::int64_t d) const {
    return get(view_.keys(block, head), d * kAttentionBlock + slot);
  }
  double value(std::int32_t block, std::int32_t head, std::int64_t slot, std::int64_t d) const {
    return get(view_.values(block, head), slot * view_.head_dim + d);
  }

 private:
  static constexpr std::size_t kMargin = 64;

  void fill(std::int32_t block) { refill(block, 0); }
  // The contents are integers of 2^-8 in (-1, 1), which every storage type holds exactly.
  void put(std::byte* side, std::int64_t index) {
    write(side, index, static_cast<float>(static_cast<int>(random_() % 511) - 255) * 0x1p-8F);
  }
  void write(std::byte* side, std::int64_t index, float value) const {
    std::byte* at = side + static_cast<std::size_t>(index) * dtype_bytes(view_.dtype);
    if (view_.dtype == DType::kF32) {
      std::memcpy(at, &value, sizeof(value));
      return;
    }
    const std::uint16_t half = view_.dtype == DType::kF16 ? float_to_half(value) : float_to_bfloat16(value);
    std::memcpy(at, &half, sizeof(half));
  }
  float get(const std::byte* side, std::int64_t index) const {
    const std::byte* at = side + static_cast<std::size_t>(index) * dtype_bytes(view_.dtype);
    if (view_.dtype == DType::kF32) {
      float value = 0;
      std::memcpy(&value, at, sizeof(value));
      return value;
    }
    std::uint16_t half = 0;
    std::memcpy(&half, at, sizeof(half));
    return view_.dtype == DType::kF16 ? half_to_float(half) : bfloat16_to_float(half);
  }
  void move(const std::byte* from, std::byte* to, std::int64_t index) const {
    write(to, index, get(from, index));
  }

  std::mt19937 random_;
  KvView view_;
  AlignedBuffer<std::byte> storage_;
  std::vector<std::int32_t> free_;
};

/// A span that owns its block table.
struct OwnedSpan {
  std::vector<std::int32_t> blocks;
  std::int32_t first_position;
  std::int32_t first_row;
  std::int32_t rows;

  SequenceSpan span() const {
    return {
        .block_table = blocks.data(), .first_position = first_position, .first_row = first_row, .rows = rows};
  }
};

inline std::vector<SequenceSpan> views_of(std::span<const OwnedSpan> owned) {
  std::vector<SequenceSpan> spans;
  for (const OwnedSpan& span : owned) spans.push_back(span.span());
  return spans;
}

}  // namespace rondo::kernels
