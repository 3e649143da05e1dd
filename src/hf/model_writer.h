// Writing a model folder that transformers and this program load: config.json, safetensors, tokenizer files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "hf/model_config.h"
#include "hf/safetensors_header.h"

namespace rondo::hf {

/// Fills `out` with all elements of the tensor, row-major. Called once per tensor, in the order given.
using FillTensor = std::function<Result<void>(const TensorSpec& tensor, std::span<float> out)>;

/// A tensor of the folder that is to be written.
struct NamedShape {
  std::string name;
  std::vector<std::int64_t> shape;
};

struct WriteModelOptions {
  /// Type of the stored weights; config.json says the same.
  DType dtype = DType::kFp16;
  /// A file holds tensors up to this many bytes, or a single larger one; more than one file gets an index.
  std::uint64_t max_shard_bytes = 5'000'000'000;
  /// Where the tokenizer's and generation's files are copied from; empty: none are.
  std::filesystem::path source_folder = {};
};

/// Names of the files that are copied from the source folder where they exist.
const std::vector<std::string>& companion_file_names();

/// Writes one safetensors file, tensor by tensor, and fsyncs it; `metadata` joins the format's name in its
/// header. Of the data, one tensor is in memory at a time. kNumeric from `narrow`, and whatever `fill`
/// returns; the file is then incomplete and must be thrown away.
Result<void> write_safetensors(const std::filesystem::path& path, std::span<const TensorSpec> tensors,
                               const FillTensor& fill, std::map<std::string, std::string> metadata = {});

/// Writes a whole model folder, durable when it returns. `folder` is created if need be, and must not hold a
/// model yet. The tensors are those that the architecture has under transformers' names (none for a tied
/// head).
///
/// After an error the folder is incomplete and must be thrown away: publish_folder() does that.
Result<void> write_model_folder(const std::filesystem::path& folder, const ModelConfig& config,
                                std::span<const NamedShape> tensors, const FillTensor& fill,
                                const WriteModelOptions& options);

}  // namespace rondo::hf
