// Driven by hf_oracle_test.py.
//   hf_probe read FOLDER OUT          every tensor widened to fp32 into OUT/<index>.f32;
//                                    prints "name TAB dtype TAB shape" for each
//   hf_probe copy FOLDER OUT DTYPE MAX_SHARD_BYTES   publishes a copy as OUT/copy
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/file.h"
#include "hf/model_weights.h"
#include "hf/model_writer.h"
#include "hf/publish.h"

namespace rondo::hf {
namespace {

Result<void> read_all(const std::string& folder, const std::string& out) {
  RONDO_ASSIGN(const auto reader, ModelWeightsReader::open(folder));
  std::size_t index = 0;
  for (const std::string& name : reader->names()) {
    RONDO_ASSIGN(const TensorView view, reader->find(name));
    std::vector<float> values(static_cast<std::size_t>(view.num_elements()));
    widen(view, 0, values);
    RONDO_ASSIGN(FileWriter file, FileWriter::create(fmt::format("{}/{}.f32", out, index++)));
    RONDO_TRY(file.append(std::as_bytes(std::span(values))));
    RONDO_TRY(file.finish());
    fmt::print("{}\t{}\t{}\n", name, dtype_name(view.dtype), fmt::join(view.shape, ","));
  }
  return {};
}

Result<void> copy(const std::string& folder, const std::string& out, const std::string& dtype,
                  std::uint64_t max_bytes) {
  RONDO_ASSIGN(const DType stored, parse_dtype(dtype));
  RONDO_ASSIGN(const ModelConfig config, ModelConfig::read(folder));
  RONDO_ASSIGN(const auto reader, ModelWeightsReader::open(folder));
  std::vector<NamedShape> tensors;
  for (const std::string& name : reader->names()) {
    RONDO_ASSIGN(const TensorView view, reader->find(name));
    tensors.push_back({name, {view.shape.begin(), view.shape.end()}});
  }
  const FillTensor fill = [&](const TensorSpec& tensor, std::span<float> values) -> Result<void> {
    RONDO_ASSIGN(const TensorView view, reader->find(tensor.name));
    widen(view, 0, values);
    return {};
  };
  const WriteModelOptions options = {.dtype = stored, .max_shard_bytes = max_bytes, .source_folder = folder};
  const auto published = publish_folder(out, "copy", "latest", [&](const std::filesystem::path& target) {
    return write_model_folder(target, config, tensors, fill, options);
  });
  RONDO_TRY(published);
  return {};
}

Result<void> run(const std::vector<std::string>& args) {
  if (args.size() == 3 && args[0] == "read") return read_all(args[1], args[2]);
  if (args.size() == 5 && args[0] == "copy")
    return copy(args[1], args[2], args[3], std::strtoull(args[4].c_str(), nullptr, 10));
  return fail(Code::kInvalidArgument,
              "usage: hf_probe read FOLDER OUT | copy FOLDER OUT DTYPE MAX_SHARD_BYTES");
}

}  // namespace
}  // namespace rondo::hf

int main(int argc, char** argv) {
  const auto result = rondo::hf::run(std::vector<std::string>(argv + 1, argv + argc));
  if (result) return 0;
  fmt::print(stderr, "hf_probe: {}\n", result.error().to_string());
  return 1;
}
