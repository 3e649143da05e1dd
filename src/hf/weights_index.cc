#include "hf/weights_index.h"

#include "hf/strict_json.h"

namespace rondo::hf {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxDepth = 8;

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

Result<WeightMap> parse_weights_index(std::string_view text) {
  RONDO_ASSIGN(const json root, parse_strict_json<json>(text, kMaxDepth));
  const auto found = root.is_object() ? root.find("weight_map") : root.end();
  if (found == root.end() || !found->is_object() || found->empty())
    return fail(Code::kDataLoss, "it has no 'weight_map' that names tensors and their files");
  WeightMap map;
  for (const auto& [tensor, file] : found->items()) {
    if (!file.is_string() || !is_plain_file_name(file.get_ref<const std::string&>()))
      return fail(Code::kDataLoss, "tensor '{}': {} is not the name of a file in this folder", tensor,
                  brief(file));
    map.emplace(tensor, file.get<std::string>());
  }
  return map;
}

std::string make_weights_index(const WeightMap& map, std::uint64_t total_bytes) {
  const json root = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", map}};
  return root.dump(2) + "\n";
}

}  // namespace rondo::hf
