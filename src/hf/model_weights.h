// Reading weights: one safetensors file, or all the weights of a model folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "hf/safetensors_header.h"
#include "hf/tensor_view.h"

namespace rondo::hf {

/// Maps one safetensors file and finds tensors in it; opening checks every length, offset, dtype and shape.
///
/// Does not read the tensors' bytes: a NaN is found by who converts them. The file must not shrink while it
/// is open (the operating system answers with SIGBUS). Immutable, any thread; views live as long as this
/// object.
class SafetensorsFile final {
 public:
  /// kNotFound, kIo; kDataLoss and kUnsupported as parse_safetensors_header, with the path in front.
  static Result<std::unique_ptr<const SafetensorsFile>> open(const std::filesystem::path& path);

  const std::vector<SafetensorsHeader::Entry>& entries() const { return header_.entries; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  /// The view of one of entries().
  TensorView view(const SafetensorsHeader::Entry& entry) const;
  /// kNotFound names the tensor and the nearest name.
  Result<TensorView> find(std::string_view name) const;

 private:
  SafetensorsFile(std::filesystem::path path, std::shared_ptr<const MappedFile> file,
                  SafetensorsHeader header);

  std::filesystem::path path_;
  std::shared_ptr<const MappedFile> file_;
  SafetensorsHeader header_;
};

/// The weights of a model folder: model.safetensors, or else the shards that model.safetensors.index.json
/// names.
///
/// Does not know which tensors an architecture needs. Index and shards must agree exactly: each tensor lies
/// in the shard that the index says, and no shard has one that the index does not name. Immutable, any
/// thread; views live as long as this object.
class ModelWeightsReader final {
 public:
  /// kNotFound if the folder has neither file; kDataLoss if index and shards disagree, or as SafetensorsFile.
  static Result<std::unique_ptr<const ModelWeightsReader>> open(const std::filesystem::path& folder);

  /// Sorted.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(std::string_view name) const;
  /// kNotFound names the tensor, the folder and the nearest name.
  Result<TensorView> find(std::string_view name) const;
  /// Bytes of all tensors as stored.
  std::uint64_t total_bytes() const { return total_bytes_; }

 private:
  struct Place {
    const SafetensorsFile* file;
    const SafetensorsHeader::Entry* entry;
  };

  ModelWeightsReader(std::filesystem::path folder, std::vector<std::unique_ptr<const SafetensorsFile>> files);

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<const SafetensorsFile>> files_;
  std::vector<std::string> names_;
  std::vector<Place> places_;  // of names_
  std::uint64_t total_bytes_ = 0;
};

}  // namespace rondo::hf
