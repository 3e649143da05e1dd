// TensorView: one tensor inside a memory-mapped file, and exact conversion to and from fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "hf/dtype.h"

namespace rondo::hf {

/// A borrowed tensor: row-major, little-endian, not necessarily aligned. Valid while the reader that gave it
/// lives. Any thread.
struct TensorView {
  std::string_view name;
  DType dtype = DType::kFp32;
  std::span<const std::int64_t> shape = {};
  std::span<const std::byte> bytes = {};

  std::int64_t num_elements() const { return static_cast<std::int64_t>(bytes.size() / dtype_size(dtype)); }
};

/// Widens elements [first, first + out.size()) to fp32; exact. The range must lie inside the tensor.
void widen(const TensorView& tensor, std::int64_t first, std::span<float> out);

/// Rounds to nearest, ties to even, into `dtype`'s bytes; out.size() is in.size() * dtype_size(dtype).
/// kNumeric, naming the tensor, for a NaN, an infinity, or a value that rounds beyond the type's range; `out`
/// is then unspecified. `first` is the index of in[0] in its tensor, for the message.
Result<void> narrow(std::string_view name, std::int64_t first, std::span<const float> in, DType dtype,
                    std::span<std::byte> out);

}  // namespace rondo::hf
