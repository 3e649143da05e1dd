#include "hf/model_weights.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/text_distance.h"
#include "hf/weights_index.h"

namespace rondo::hf {
namespace fs = std::filesystem;
namespace {

using Files = std::vector<std::unique_ptr<const SafetensorsFile>>;

tl::unexpected<Status> not_found(const fs::path& where, std::string_view name,
                                 const std::vector<std::string>& names) {
  if (names.empty()) return fail(Code::kNotFound, "{} holds no tensors, so no '{}'", where.string(), name);
  return fail(Code::kNotFound, "{} has no tensor '{}'; the nearest is '{}'", where.string(), name,
              nearest_name(name, names));
}

const SafetensorsHeader::Entry* find_entry(const std::vector<SafetensorsHeader::Entry>& entries,
                                           std::string_view name) {
  const auto found =
      std::lower_bound(entries.begin(), entries.end(), name,
                       [](const auto& entry, std::string_view n) { return entry.spec.name < n; });
  return found != entries.end() && found->spec.name == name ? &*found : nullptr;
}

// Every tensor of the index lies in its shard, and no shard has another.
Result<void> check_against_index(const WeightMap& map,
                                 const std::map<std::string, const SafetensorsFile*>& files) {
  for (const auto& [tensor, file] : map)
    if (find_entry(files.at(file)->entries(), tensor) == nullptr)
      return fail(Code::kDataLoss, "the index says that tensor '{}' is in {}, but it is not", tensor, file);
  for (const auto& [name, file] : files)
    for (const auto& entry : file->entries()) {
      const auto named = map.find(entry.spec.name);
      if (named == map.end() || named->second != name)
        return fail(Code::kDataLoss, "{} holds tensor '{}', but the index {}", name, entry.spec.name,
                    named == map.end() ? "does not name it" : "says that it is in " + named->second);
    }
  return {};
}

Result<Files> open_shards(const fs::path& folder, std::string_view index) {
  RONDO_ASSIGN(const WeightMap map, parse_weights_index(index));
  Files files;
  std::map<std::string, const SafetensorsFile*> by_name;
  for (const auto& [tensor, name] : map) {
    if (by_name.contains(name)) continue;
    auto file = SafetensorsFile::open(folder / name);
    if (!file && file.error().code() == Code::kNotFound)
      return fail(Code::kDataLoss, "tensor '{}' should be in {}, but that file is missing", tensor, name);
    RONDO_ASSIGN(auto opened, std::move(file));
    by_name.emplace(name, opened.get());
    files.push_back(std::move(opened));
  }
  RONDO_TRY(check_against_index(map, by_name));
  return files;
}

Result<Files> open_files(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / kSingleFileName, ignored)) {
    Files files;
    RONDO_ASSIGN(auto file, SafetensorsFile::open(folder / kSingleFileName));
    files.push_back(std::move(file));
    return files;
  }
  const fs::path index_path = folder / kIndexFileName;
  auto index = read_file(index_path);
  if (!index && index.error().code() == Code::kNotFound)
    return fail(Code::kNotFound, "{} has neither {} nor {}: it is no model folder with safetensors weights",
                folder.string(), kSingleFileName, kIndexFileName);
  RONDO_ASSIGN(const std::string text, std::move(index));
  RONDO_ASSIGN_CTX(auto files, open_shards(folder, text), index_path.string());
  return files;
}

}  // namespace

SafetensorsFile::SafetensorsFile(fs::path path, std::shared_ptr<const MappedFile> file,
                                 SafetensorsHeader header)
    : path_(std::move(path)), file_(std::move(file)), header_(std::move(header)) {}

Result<std::unique_ptr<const SafetensorsFile>> SafetensorsFile::open(const fs::path& path) {
  RONDO_ASSIGN(auto file, MappedFile::open(path));
  RONDO_ASSIGN_CTX(auto header, parse_safetensors_header(file->bytes()), path.string());
  return std::unique_ptr<const SafetensorsFile>(
      new SafetensorsFile(path, std::move(file), std::move(header)));
}

TensorView SafetensorsFile::view(const SafetensorsHeader::Entry& entry) const {
  const auto bytes = file_->bytes().subspan(static_cast<std::size_t>(header_.data_begin + entry.begin),
                                            static_cast<std::size_t>(entry.end - entry.begin));
  return {.name = entry.spec.name, .dtype = entry.spec.dtype, .shape = entry.spec.shape, .bytes = bytes};
}

Result<TensorView> SafetensorsFile::find(std::string_view name) const {
  if (const auto* entry = find_entry(header_.entries, name)) return view(*entry);
  std::vector<std::string> names;
  for (const auto& entry : header_.entries) names.push_back(entry.spec.name);
  return not_found(path_, name, names);
}

ModelWeightsReader::ModelWeightsReader(fs::path folder, Files files)
    : folder_(std::move(folder)), files_(std::move(files)) {
  std::map<std::string_view, Place> by_name;
  for (const auto& file : files_)
    for (const auto& entry : file->entries()) by_name.emplace(entry.spec.name, Place{file.get(), &entry});
  for (const auto& [name, place] : by_name) {
    names_.emplace_back(name);
    places_.push_back(place);
    total_bytes_ += place.entry->end - place.entry->begin;
  }
}

Result<std::unique_ptr<const ModelWeightsReader>> ModelWeightsReader::open(const fs::path& folder) {
  RONDO_ASSIGN(Files files, open_files(folder));
  return std::unique_ptr<const ModelWeightsReader>(new ModelWeightsReader(folder, std::move(files)));
}

bool ModelWeightsReader::contains(std::string_view name) const {
  return std::binary_search(names_.begin(), names_.end(), name);
}

Result<TensorView> ModelWeightsReader::find(std::string_view name) const {
  const auto found = std::lower_bound(names_.begin(), names_.end(), name);
  if (found == names_.end() || *found != name) return not_found(folder_, name, names_);
  const Place& place = places_[static_cast<std::size_t>(found - names_.begin())];
  return place.file->view(*place.entry);
}

}  // namespace rondo::hf
