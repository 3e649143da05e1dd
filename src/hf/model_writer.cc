#include "hf/model_writer.h"

#include <algorithm>
#include <limits>

#include "base/aligned_buffer.h"
#include "base/file.h"
#include "hf/tensor_view.h"
#include "hf/weights_index.h"

namespace rondo::hf {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kChunkElements = std::size_t{1} << 18;

using Shard = std::vector<TensorSpec>;

// Narrows and appends one tensor in pieces.
Result<void> append_tensor(FileWriter& file, const TensorSpec& tensor, std::span<const float> values,
                           std::span<std::byte> scratch) {
  for (std::size_t first = 0; first < values.size(); first += kChunkElements) {
    const auto piece = values.subspan(first, std::min(kChunkElements, values.size() - first));
    const auto bytes = scratch.first(piece.size() * dtype_size(tensor.dtype));
    RONDO_TRY(narrow(tensor.name, static_cast<std::int64_t>(first), piece, tensor.dtype, bytes));
    RONDO_TRY(file.append(bytes));
  }
  return {};
}

// Greedy in the order given. `tensors` are known to have valid shapes.
std::vector<Shard> plan_shards(std::vector<TensorSpec> tensors, std::uint64_t max_bytes) {
  std::vector<Shard> shards;
  std::uint64_t used = 0;
  for (TensorSpec& tensor : tensors) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(*num_elements(tensor)) * dtype_size(tensor.dtype);
    const bool full = bytes > 0 && used > 0 && (bytes > max_bytes || used > max_bytes - bytes);
    if (shards.empty() || full) {
      shards.emplace_back();
      used = 0;
    }
    used += bytes;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

std::string shard_name(std::size_t index, std::size_t count) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

Result<std::vector<TensorSpec>> with_dtype(std::span<const NamedShape> tensors, DType dtype) {
  std::vector<TensorSpec> specs;
  std::uint64_t total = 0;
  for (const NamedShape& tensor : tensors) {
    specs.push_back({.name = tensor.name, .dtype = dtype, .shape = tensor.shape});
    RONDO_ASSIGN(const std::int64_t count, num_elements(specs.back()));
    total += static_cast<std::uint64_t>(count) * dtype_size(dtype);
    if (total > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return fail(Code::kInvalidArgument, "the tensors up to '{}' are more than any disk holds", tensor.name);
  }
  if (specs.empty()) return fail(Code::kInvalidArgument, "a model folder needs at least one tensor");
  // All names at once: a name must not repeat in another shard either.
  RONDO_TRY(make_safetensors_header(specs, {}));
  return specs;
}

Result<void> write_shards(const fs::path& folder, const std::vector<Shard>& shards, const FillTensor& fill) {
  if (shards.size() == 1) return write_safetensors(folder / kSingleFileName, shards.front(), fill);
  WeightMap map;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    RONDO_TRY(write_safetensors(folder / name, shards[i], fill));
    for (const TensorSpec& tensor : shards[i]) {
      map.emplace(tensor.name, name);
      total += static_cast<std::uint64_t>(*num_elements(tensor)) * dtype_size(tensor.dtype);
    }
  }
  return write_file_durable(folder / kIndexFileName, make_weights_index(map, total));
}

Result<void> copy_companions(const fs::path& from, const fs::path& to) {
  for (const std::string& name : companion_file_names()) {
    auto bytes = read_file(from / name);
    if (!bytes && bytes.error().code() == Code::kNotFound) continue;
    RONDO_ASSIGN(const std::string present, std::move(bytes));
    RONDO_TRY(write_file_durable(to / name, present));
  }
  return {};
}

Result<void> make_model_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return fail(Code::kIo, "cannot create the folder {}: {}", folder.string(), error.message());
  for (const std::string_view name : {std::string_view("config.json"), kSingleFileName, kIndexFileName})
    if (fs::exists(folder / name, error))
      return fail(Code::kInvalidArgument, "{} holds a model already ({}); choose another folder",
                  folder.string(), name);
  return {};
}

}  // namespace

const std::vector<std::string>& companion_file_names() {
  static const std::vector<std::string> names = {"LICENSE",
                                                 "LICENSE.txt",
                                                 "NOTICE",
                                                 "added_tokens.json",
                                                 "chat_template.jinja",
                                                 "chat_template.json",
                                                 "generation_config.json",
                                                 "merges.txt",
                                                 "special_tokens_map.json",
                                                 "tokenizer.json",
                                                 "tokenizer.model",
                                                 "tokenizer_config.json",
                                                 "vocab.json"};
  return names;
}

Result<void> write_safetensors(const fs::path& path, std::span<const TensorSpec> tensors,
                               const FillTensor& fill, std::map<std::string, std::string> metadata) {
  metadata.emplace("format", "pt");
  RONDO_ASSIGN(const std::string header, make_safetensors_header(tensors, metadata));
  std::size_t largest = 0;
  for (const TensorSpec& tensor : tensors)
    largest = std::max(largest, static_cast<std::size_t>(*num_elements(tensor)));
  AlignedBuffer<float> values(largest);
  AlignedBuffer<std::byte> scratch(std::min(largest, kChunkElements) * sizeof(float));
  RONDO_ASSIGN(FileWriter file, FileWriter::create(path));
  RONDO_TRY(file.append(std::as_bytes(std::span(header))));
  for (const TensorSpec& tensor : tensors) {
    const auto out = values.span().first(static_cast<std::size_t>(*num_elements(tensor)));
    RONDO_TRY(fill(tensor, out));
    RONDO_TRY(append_tensor(file, tensor, out, scratch.span()));
  }
  return file.finish();
}

Result<void> write_model_folder(const fs::path& folder, const ModelConfig& config,
                                std::span<const NamedShape> tensors, const FillTensor& fill,
                                const WriteModelOptions& options) {
  RONDO_ASSIGN(auto specs, with_dtype(tensors, options.dtype));
  RONDO_TRY(make_model_folder(folder));
  RONDO_TRY(write_file_durable(folder / "config.json", config.to_json(options.dtype)));
  if (!options.source_folder.empty()) RONDO_TRY(copy_companions(options.source_folder, folder));
  RONDO_TRY(write_shards(folder, plan_shards(std::move(specs), options.max_shard_bytes), fill));
  return fsync_folder(folder);
}

}  // namespace rondo::hf
