#include "kernels/types.h"

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/float16.h"

namespace rondo::kernels {
namespace {

struct PackF32 {
  using Raw = float;
  static Raw narrow(float v) { return v; }
  static float widen(Raw v) { return v; }
};
struct PackF16 {
  using Raw = std::uint16_t;
  static Raw narrow(float v) { return float_to_half(v); }
  static float widen(Raw v) { return half_to_float(v); }
};
struct PackBF16 {
  using Raw = std::uint16_t;
  static Raw narrow(float v) { return float_to_bfloat16(v); }
  static float widen(Raw v) { return bfloat16_to_float(v); }
};

template <class Body>
auto with_packing(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kF16:
      return body(PackF16());
    case DType::kBF16:
      return body(PackBF16());
    case DType::kF32:
      break;
  }
  return body(PackF32());
}

std::int64_t packed_index(std::int64_t row, std::int64_t col, std::int64_t cols) {
  return ((row / kPanel) * cols + col) * kPanel + row % kPanel;
}

}  // namespace

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "fp32";
    case DType::kF16:
      return "fp16";
    case DType::kBF16:
      return "bf16";
  }
  return "?";
}

float round_to(DType dtype, float value) {
  return with_packing(dtype, [&](auto packing) { return packing.widen(packing.narrow(value)); });
}

PackedMatrix::PackedMatrix(DType dtype, std::int64_t rows, std::int64_t cols)
    : PackedMatrix(dtype, rows, cols, nullptr) {
  own_ = AlignedBuffer<std::byte>(storage_bytes(dtype, rows, cols));
  data_ = own_.data();
}

PackedMatrix::PackedMatrix(DType dtype, std::int64_t rows, std::int64_t cols, std::byte* storage)
    : dtype_(dtype), rows_(rows), cols_(cols), data_(storage) {
  RONDO_CHECK_GT(rows, 0);
  RONDO_CHECK_GT(cols, 0);
}

std::size_t PackedMatrix::storage_bytes(DType dtype, std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>((rows + kPanel - 1) / kPanel * kPanel * cols) * dtype_bytes(dtype);
}

bool PackedMatrix::pack_rows(std::int64_t first, std::int64_t count, const float* source) {
  RONDO_CHECK(first >= 0 && count >= 0 && first + count <= rows_);
  return with_packing(dtype_, [&](auto packing) {
    auto* out = reinterpret_cast<typename decltype(packing)::Raw*>(data_);
    bool finite = true;
    for (std::int64_t r = 0; r < count; ++r) {
      for (std::int64_t c = 0; c < cols_; ++c) {
        const auto stored = packing.narrow(source[r * cols_ + c]);
        finite = finite && std::isfinite(packing.widen(stored));
        out[packed_index(first + r, c, cols_)] = stored;
      }
    }
    return finite;
  });
}

void PackedMatrix::unpack_rows(std::int64_t first, std::int64_t count, float* out) const {
  RONDO_CHECK(first >= 0 && count >= 0 && first + count <= rows_);
  with_packing(dtype_, [&](auto packing) {
    const auto* in = reinterpret_cast<const typename decltype(packing)::Raw*>(data_);
    for (std::int64_t r = 0; r < count; ++r)
      for (std::int64_t c = 0; c < cols_; ++c)
        out[r * cols_ + c] = packing.widen(in[packed_index(first + r, c, cols_)]);
  });
}

}  // namespace rondo::kernels
