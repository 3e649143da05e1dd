// DType: the number types that weights may have in a model folder, and their names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace rondo::hf {

/// How a weight is stored.
enum class DType : std::uint8_t { kBf16, kFp16, kFp32 };

/// Bytes per element.
std::size_t dtype_size(DType dtype);

/// rondo's name: "bf16", "fp16", "fp32".
std::string_view dtype_name(DType dtype);
/// The name in config.json: "bfloat16", "float16", "float32".
std::string_view dtype_config_name(DType dtype);
/// The name in a safetensors header: "BF16", "F16", "F32".
std::string_view dtype_safetensors_name(DType dtype);

/// The type with one of rondo's names; kInvalidArgument lists them.
Result<DType> parse_dtype(std::string_view name);
/// kUnsupported lists the names that are known.
Result<DType> parse_config_dtype(std::string_view name);
Result<DType> parse_safetensors_dtype(std::string_view name);

}  // namespace rondo::hf
