// Storage types, the constants of the numbers contract, and the packed weight matrix.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/status.h"

namespace rondo::kernels {

/// Type of stored weights and KV; activations, sums and gradients are always fp32.
enum class DType : std::uint8_t { kF32, kF16, kBF16 };

constexpr auto enum_names(DType) {
  using enum DType;
  return std::array{std::pair{kF16, "fp16"}, std::pair{kBF16, "bf16"}, std::pair{kF32, "fp32"}};
}

std::string_view dtype_name(DType dtype);  // "fp32", "fp16", "bf16"
constexpr std::size_t dtype_bytes(DType dtype) {
  return dtype == DType::kF32 ? 4 : 2;
}
/// `value` rounded to nearest even into `dtype` and back; fp16 overflow gives infinity.
float round_to(DType dtype, float value);

// Numbers contract: changing one of these changes results.
inline constexpr int kPanel = 16;           // output columns of a packed panel
inline constexpr int kReduceLanes = 16;     // virtual lanes of a reduction: lane = index mod 16
inline constexpr int kAttentionBlock = 64;  // positions of an attention block and of a KV block
inline constexpr int kMaxChains = 8;        // V: chains of a split sum, a power of two
inline constexpr int kMaxHeadDim = 256;
inline constexpr int kFixedPointBits = 36;  // gradients are summed as integers of 2^-36

/// A stretch of a sum: elements [begin, end) continue chain `chain`. A matmul element is computed as one FMA
/// chain per chain index, each starting at 0 and visiting its segments in the order given; chains then
/// combine by the fixed binary tree ((c0+c1)+(c2+c3))+… of neighbours.
struct KSegment {
  std::int32_t begin;
  std::int32_t end;
  std::int32_t chain;
};

/// A weight matrix [rows, cols] = [out features, in features] in panels of 16 rows: element (r, c) is at
/// ((r / 16) * cols + c) * 16 + r % 16. Rows are padded with zeros to a multiple of 16.
class PackedMatrix final {
 public:
  PackedMatrix() = default;
  /// All zero, in memory of its own.
  PackedMatrix(DType dtype, std::int64_t rows, std::int64_t cols);
  /// In `storage`, storage_bytes() long, aligned to a cache line, which holds zeros or such a matrix and
  /// outlives this one.
  PackedMatrix(DType dtype, std::int64_t rows, std::int64_t cols, std::byte* storage);
  PackedMatrix(PackedMatrix&&) noexcept = default;
  PackedMatrix& operator=(PackedMatrix&&) noexcept = default;
  static std::size_t storage_bytes(DType dtype, std::int64_t rows, std::int64_t cols);

  DType dtype() const { return dtype_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  std::int64_t panels() const { return (rows_ + kPanel - 1) / kPanel; }
  std::size_t bytes() const { return data_ == nullptr ? 0 : storage_bytes(dtype_, rows_, cols_); }
  const void* data() const { return data_; }
  void* data() { return data_; }

  /// Rounds and packs `count` rows of fp32 source [count, cols] to rows [first, first + count).
  /// Returns false if a value is not finite after rounding (the rows are written all the same).
  bool pack_rows(std::int64_t first, std::int64_t count, const float* source);
  /// Widens rows [first, first + count) to fp32 [count, cols].
  void unpack_rows(std::int64_t first, std::int64_t count, float* out) const;

 private:
  DType dtype_ = DType::kF32;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  AlignedBuffer<std::byte> own_;  // empty if the storage is another's
  std::byte* data_ = nullptr;
};

/// Where one layer's keys and values lie. Block b starts at base + b * block_stride (bytes); within it, keys
/// at key_offset as [kv_heads][head_dim][64 positions], values at value_offset as [kv_heads][64
/// positions][head_dim], both in `dtype`. Slots that were never written hold finite values.
struct KvView {
  std::byte* base = nullptr;
  std::size_t block_stride = 0;
  std::size_t key_offset = 0;
  std::size_t value_offset = 0;
  DType dtype = DType::kF32;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;

  std::size_t head_bytes() const {
    return static_cast<std::size_t>(head_dim) * kAttentionBlock * dtype_bytes(dtype);
  }
  /// Bytes of one layer's keys (or values) in one block.
  std::size_t side_bytes() const { return static_cast<std::size_t>(kv_heads) * head_bytes(); }
  std::byte* keys(std::int32_t block, std::int32_t head) const {
    return base + static_cast<std::size_t>(block) * block_stride + key_offset +
           static_cast<std::size_t>(head) * head_bytes();
  }
  std::byte* values(std::int32_t block, std::int32_t head) const {
    return base + static_cast<std::size_t>(block) * block_stride + value_offset +
           static_cast<std::size_t>(head) * head_bytes();
  }
};

/// `rows` consecutive rows of a batch that belong to one sequence, at positions first_position, +1, ….
/// block_table[p / 64] holds position p; it covers [0, first_position + rows).
struct SequenceSpan {
  const std::int32_t* block_table;
  std::int32_t first_position;
  std::int32_t first_row;
  std::int32_t rows;
};

}  // namespace rondo::kernels
