// Bytes from outside: a safetensors file, config.json, the weights index. The first byte chooses.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "hf/model_config.h"
#include "hf/safetensors_header.h"
#include "hf/weights_index.h"

namespace {

using namespace rondo;

// Whatever is accepted lies inside the file, tensor by tensor and back to back.
void check_safetensors(std::string_view file) {
  const auto header = hf::parse_safetensors_header(std::as_bytes(std::span(file)));
  if (!header) return;
  std::uint64_t total = 0;
  for (const auto& entry : header->entries) {
    RONDO_CHECK_LE(entry.begin, entry.end);
    RONDO_CHECK_LE(header->data_begin + entry.end, file.size());
    const auto count = hf::num_elements(entry.spec);
    RONDO_CHECK(count.has_value());
    RONDO_CHECK_EQ(static_cast<std::uint64_t>(*count) * hf::dtype_size(entry.spec.dtype),
                   entry.end - entry.begin);
    total += entry.end - entry.begin;
  }
  RONDO_CHECK_EQ(header->data_begin + total, file.size());
}

// Whatever is accepted has the promised properties and can be written and read again.
void check_config(std::string_view text) {
  const auto config = hf::ModelConfig::parse(text);
  if (!config) return;
  RONDO_CHECK_EQ(config->num_attention_heads % config->num_key_value_heads, 0);
  RONDO_CHECK_EQ(config->head_dim % 2, 0);
  RONDO_CHECK_GT(config->hidden_size * config->num_hidden_layers * config->intermediate_size, 0);
  const auto again = hf::ModelConfig::parse(config->to_json(hf::DType::kFp16));
  RONDO_CHECK(again.has_value());
  RONDO_CHECK(again->dtype == hf::DType::kFp16);
  RONDO_CHECK_EQ(again->vocab_size, config->vocab_size);
}

void check_index(std::string_view text) {
  const auto map = hf::parse_weights_index(text);
  if (!map) return;
  for (const auto& [tensor, file] : *map) RONDO_CHECK_EQ(file.find('/'), std::string::npos);
  RONDO_CHECK(hf::parse_weights_index(hf::make_weights_index(*map, 1)).has_value());
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  const std::vector<hf::TensorSpec> tensors = {{"a", hf::DType::kBf16, {2, 3}}, {"b", hf::DType::kFp32, {}}};
  return {
      fmt::format("s{}{:x<16}", hf::make_safetensors_header(tensors, {{"format", "pt"}}).value(), ""),
      R"(c{"architectures":["LlamaForCausalLM"],"hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,)"
      R"("num_attention_heads":4,"num_key_value_heads":2,"vocab_size":300,"rope_theta":1e5,"rms_norm_eps":1e-5,)"
      R"("rope_scaling":{"rope_type":"default"},"eos_token_id":[1,2],"torch_dtype":"bfloat16"})",
      R"(i{"metadata":{"total_size":6},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})",
  };
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 's':
      check_safetensors(bytes);
      break;
    case 'c':
      check_config(bytes);
      break;
    default:
      check_index(bytes);
  }
  return 0;
}
