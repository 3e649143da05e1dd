#include "hf/tensor_view.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/float16.h"

namespace rondo::hf {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

template <class Convert>
void widen16(const std::byte* from, std::span<float> out, Convert convert) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, from + 2 * i, sizeof(bits));
    out[i] = convert(bits);
  }
}

// Writes the rounded values and returns how many come back finite before the first that does not.
template <class To, class Back>
std::size_t narrow16(std::span<const float> in, std::byte* to, To convert, Back back) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::uint16_t bits = convert(in[i]);
    if (!std::isfinite(back(bits))) return i;
    std::memcpy(to + 2 * i, &bits, sizeof(bits));
  }
  return in.size();
}

std::size_t copy32(std::span<const float> in, std::byte* to) {
  for (std::size_t i = 0; i < in.size(); ++i)
    if (!std::isfinite(in[i])) return i;
  std::memcpy(to, in.data(), in.size_bytes());
  return in.size();
}

std::size_t narrow_prefix(std::span<const float> in, DType dtype, std::byte* to) {
  switch (dtype) {
    case DType::kBf16:
      return narrow16(in, to, float_to_bfloat16, bfloat16_to_float);
    case DType::kFp16:
      return narrow16(in, to, float_to_half, half_to_float);
    case DType::kFp32:
      break;
  }
  return copy32(in, to);
}

}  // namespace

void widen(const TensorView& tensor, std::int64_t first, std::span<float> out) {
  RONDO_CHECK_GE(first, 0);
  RONDO_CHECK_LE(static_cast<std::int64_t>(out.size()), tensor.num_elements() - first);
  if (out.empty()) return;
  const std::byte* from = tensor.bytes.data() + static_cast<std::size_t>(first) * dtype_size(tensor.dtype);
  switch (tensor.dtype) {
    case DType::kBf16:
      return widen16(from, out, bfloat16_to_float);
    case DType::kFp16:
      return widen16(from, out, half_to_float);
    case DType::kFp32:
      std::memcpy(out.data(), from, out.size_bytes());
  }
}

Result<void> narrow(std::string_view name, std::int64_t first, std::span<const float> in, DType dtype,
                    std::span<std::byte> out) {
  RONDO_CHECK_EQ(out.size(), in.size() * dtype_size(dtype));
  if (in.empty()) return {};
  const std::size_t done = narrow_prefix(in, dtype, out.data());
  if (done == in.size()) return {};
  const std::int64_t at = first + static_cast<std::int64_t>(done);
  if (!std::isfinite(in[done]))
    return fail(Code::kNumeric, "tensor '{}': element {} is {}; weights must be finite", name, at, in[done]);
  return fail(Code::kNumeric, "tensor '{}': element {} is {}, beyond the range of {}; choose bf16 or fp32",
              name, at, in[done], dtype_name(dtype));
}

}  // namespace rondo::hf
