// The header of a safetensors file: parsing with every claim checked, and writing.
//
//   file     = length header data
//   length   = 8 bytes, little-endian: the number of bytes of header; at most kMaxSafetensorsHeader
//   header   = JSON object, starting with '{', optionally followed by spaces (0x20):
//              { ["__metadata__": {string: string, …},]  name: tensor, … }
//   tensor   = {"dtype": "BF16" | "F16" | "F32", "shape": [n, …], "data_offsets": [begin, end]}
//   data     = the tensors' elements, row-major, little-endian, back to back: offsets count from the start of
//              data, leave no hole, do not overlap, and the last tensor ends where the file ends
//
// The format has more dtypes; a file that uses one is refused with kUnsupported. Nothing promises that a
// tensor's bytes are aligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hf/dtype.h"

namespace rondo::hf {

/// Longer headers are refused, as by the format's own library.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

/// Name, type and shape of a tensor that is to be written.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kFp32;
  std::vector<std::int64_t> shape;
};

/// Product of the dimensions. kInvalidArgument if one is negative or the bytes do not fit 63 bits.
Result<std::int64_t> num_elements(const TensorSpec& spec);

/// What a header says, all of it checked.
struct SafetensorsHeader {
  struct Entry {
    TensorSpec spec;
    std::uint64_t begin = 0;  // bytes from data_begin
    std::uint64_t end = 0;
  };
  std::vector<Entry> entries;  // sorted by name
  std::map<std::string, std::string> metadata;
  std::uint64_t data_begin = 0;  // bytes from the start of the file
};

/// Parses the header of a whole file. kDataLoss for anything that the grammar above forbids, kUnsupported for
/// another dtype; the message names the tensor.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file);

/// Length field and header for these tensors in this order, padded so that data begins at a multiple of 8.
/// kInvalidArgument for empty, reserved or duplicate names and impossible shapes.
Result<std::string> make_safetensors_header(std::span<const TensorSpec> tensors,
                                            const std::map<std::string, std::string>& metadata);

}  // namespace rondo::hf
