// model.safetensors.index.json: which shard holds which tensor.
//
//   index = {"metadata": {"total_size": bytes, …}, "weight_map": {tensor name: file name, …}}
//
// A file name is plain: no '/', not "." or "..", so it cannot leave the folder.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace rondo::hf {

inline constexpr std::string_view kSingleFileName = "model.safetensors";
inline constexpr std::string_view kIndexFileName = "model.safetensors.index.json";

/// Tensor name -> file name.
using WeightMap = std::map<std::string, std::string>;

/// kDataLoss names the tensor whose file name is not plain, or what else the text lacks.
Result<WeightMap> parse_weights_index(std::string_view text);
std::string make_weights_index(const WeightMap& map, std::uint64_t total_bytes);

}  // namespace rondo::hf
