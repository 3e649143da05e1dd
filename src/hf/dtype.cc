#include "hf/dtype.h"

#include <array>

namespace rondo::hf {
namespace {

struct Names {
  DType dtype;
  std::size_t size;
  std::string_view rondo;
  std::string_view config;
  std::string_view safetensors;
};

constexpr std::array<Names, 3> kNames = {{
    {DType::kBf16, 2, "bf16", "bfloat16", "BF16"},
    {DType::kFp16, 2, "fp16", "float16", "F16"},
    {DType::kFp32, 4, "fp32", "float32", "F32"},
}};

const Names& names(DType dtype) {
  return kNames[static_cast<std::size_t>(dtype)];
}

Result<DType> parse(std::string_view name, std::string_view Names::*column, Code code) {
  for (const Names& row : kNames)
    if (row.*column == name) return row.dtype;
  return fail(code, "unknown dtype '{}'; supported are {}, {} and {}", name, kNames[0].*column,
              kNames[1].*column, kNames[2].*column);
}

}  // namespace

std::size_t dtype_size(DType dtype) {
  return names(dtype).size;
}
std::string_view dtype_name(DType dtype) {
  return names(dtype).rondo;
}
std::string_view dtype_config_name(DType dtype) {
  return names(dtype).config;
}
std::string_view dtype_safetensors_name(DType dtype) {
  return names(dtype).safetensors;
}

Result<DType> parse_dtype(std::string_view name) {
  return parse(name, &Names::rondo, Code::kInvalidArgument);
}
Result<DType> parse_config_dtype(std::string_view name) {
  return parse(name, &Names::config, Code::kUnsupported);
}
Result<DType> parse_safetensors_dtype(std::string_view name) {
  return parse(name, &Names::safetensors, Code::kUnsupported);
}

}  // namespace rondo::hf
