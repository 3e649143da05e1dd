// ModelConfig: config.json of a model folder, checked against what this build runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "hf/dtype.h"

namespace rondo::hf {

/// The families that this build runs: one row each in model_config.cc.
enum class Architecture : std::uint8_t { kLlama };

/// The name in config.json, e.g. "LlamaForCausalLM".
std::string_view architecture_name(Architecture architecture);

/// What a model is, from its config.json. A field that the file leaves out has transformers' default for the
/// architecture where there is one; the sizes have none.
///
/// A plain value: parse() and read() return only values that hold what the comments say.
struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;  // a multiple of num_key_value_heads
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;  // even; hidden_size / num_attention_heads unless the file says more
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 0;  // in (0, 1)
  double rope_theta = 0;    // plain rotary embedding, base > 1
  bool tie_word_embeddings = false;
  std::string hidden_act;            // "silu"
  std::vector<Token> bos_token_ids;  // none, one or several, each below vocab_size
  std::vector<Token> eos_token_ids;  // likewise; read() prefers generation_config.json, as transformers
  DType dtype = DType::kFp32;        // of the weights as stored
  std::string raw;                   // the file's text

  /// Parses the text of a config.json. kDataLoss if it is not JSON; kInvalidArgument for a missing field, a
  /// wrong type or impossible dimensions; kUnsupported for a valid model that this build does not run. The
  /// message names the field, its value and what is supported.
  static Result<ModelConfig> parse(std::string_view json);

  /// Reads config.json, and the end-of-sequence ids of generation_config.json if there is one.
  static Result<ModelConfig> read(const std::filesystem::path& folder);

  /// The text of config.json for the same model stored as `stored`; other fields, known or not, stay as they
  /// are.
  std::string to_json(DType stored) const;
};

}  // namespace rondo::hf
