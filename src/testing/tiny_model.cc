#include "testing/tiny_model.h"

#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "base/file.h"
#include "base/rng.h"
#include "hf/model_config.h"
#include "model/load.h"

namespace rondo::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kByteTokens = 256;
constexpr const char* kSpecialTokens[] = {"<|im_start|>", "<|im_end|>", "<|endoftext|>"};
constexpr const char* kChatMl =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + "
    "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// GPT-2's names of bytes: printable Latin-1 stands for itself, the rest follows from U+0100.
std::string byte_name(int byte) {
  const auto printable = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

json tokenizer_json() {
  json vocab = json::object(), added = json::array();
  for (int b = 0; b < kByteTokens; ++b) vocab[byte_name(b)] = b;
  int id = kByteTokens;
  for (const char* token : kSpecialTokens) {
    vocab[token] = id;
    added.push_back({{"id", id},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
    ++id;
  }
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", vocab},
            {"merges", json::array()}}}};
}

json config_json() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", 32},
          {"intermediate_size", 48},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 8},
          {"vocab_size", 260},
          {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"tie_word_embeddings", true},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"bos_token_id", 258},
          {"eos_token_id", 257},
          {"torch_dtype", "float32"}};
}

}  // namespace

model::ModelSpec tiny_spec(kernels::DType dtype) {
  model::ModelSpec spec;
  spec.hidden = 32;
  spec.intermediate = 48;
  spec.layers = 3;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 8;
  spec.vocab = 97;
  spec.max_positions = 512;
  spec.rms_norm_eps = 1e-5F;
  spec.rope_theta = 10000.0;
  spec.dtype = dtype;
  return spec;
}

std::unique_ptr<model::Model> random_model(const model::ModelSpec& spec, std::uint32_t seed, float scale) {
  auto model = model::Model::create(spec).value();
  const Rng rng(seed, RngPurpose::kInit);
  const auto& params = model->layout().params();
  for (std::size_t i = 0; i < params.size(); ++i) {
    std::vector<float> values(static_cast<std::size_t>(params[i].count()));
    for (std::size_t j = 0; j < values.size(); ++j) {
      const auto word =
          rng.words({.step = static_cast<std::uint32_t>(i), .position = static_cast<std::uint32_t>(j)})[0];
      const float uniform = scale * (2.0F * static_cast<float>(word) * 0x1p-32F - 1.0F);
      values[j] = params[i].is_vector ? 1.0F + uniform : uniform;
    }
    const auto stored =
        model->weights().store(static_cast<model::ParamIndex>(i), 0, params[i].rows, values.data());
    RONDO_CHECK(stored.has_value());
  }
  return model;
}

std::vector<Token> random_tokens(std::int32_t vocab, std::int64_t count, std::uint32_t seed) {
  const Rng rng(seed, RngPurpose::kShuffle);
  std::vector<Token> tokens;
  for (std::int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<Token>(
        rng.below({.position = static_cast<std::uint32_t>(i)}, static_cast<std::uint64_t>(vocab))));
  return tokens;
}

Result<void> write_tiny_model_folder(const fs::path& folder, std::uint32_t seed) {
  const fs::path source = folder.string() + ".source";
  std::error_code error;
  fs::create_directories(source, error);
  if (error) return fail(Code::kIo, "cannot create {}: {}", source.string(), error.message());
  RONDO_TRY(write_file_durable(source / "config.json", config_json().dump(2)));
  RONDO_TRY(write_file_durable(source / "tokenizer.json", tokenizer_json().dump()));
  RONDO_TRY(write_file_durable(source / "tokenizer_config.json",
                               json{{"tokenizer_class", "PreTrainedTokenizerFast"},
                                    {"eos_token", "<|im_end|>"},
                                    {"chat_template", kChatMl}}
                                   .dump(2)));
  RONDO_ASSIGN(const hf::ModelConfig config, hf::ModelConfig::read(source));
  RONDO_ASSIGN(const model::ModelSpec spec, model::make_spec(config, kernels::DType::kF32, 0));
  const auto model = random_model(spec, seed);
  RONDO_TRY(model::write_model(*model, config, folder, source));
  fs::remove_all(source, error);
  return {};
}

Compute::Compute(int threads, const char* target)
    : pool_(threads), context_{kernels::find_target(target).value(), &pool_} {}

}  // namespace rondo::testing
