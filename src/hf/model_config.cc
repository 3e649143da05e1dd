#include "hf/model_config.h"

#include <array>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "base/file.h"
#include "hf/strict_json.h"

namespace rondo::hf {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxDepth = 16;
constexpr std::size_t kMaxText = 1 << 20;

struct ArchitectureRow {
  Architecture architecture;
  std::string_view name;
};
constexpr std::array<ArchitectureRow, 1> kArchitectures = {{{Architecture::kLlama, "LlamaForCausalLM"}}};

// A whole number with its largest sensible value; a larger one is a typing error, not a model.
struct SizeField {
  const char* name;
  std::int64_t ModelConfig::*member;
  std::int64_t largest;
};
constexpr std::array<SizeField, 5> kSizes = {{
    {"hidden_size", &ModelConfig::hidden_size, 1 << 20},
    {"intermediate_size", &ModelConfig::intermediate_size, 1 << 22},
    {"num_hidden_layers", &ModelConfig::num_hidden_layers, 1 << 12},
    {"num_attention_heads", &ModelConfig::num_attention_heads, 1 << 12},
    {"vocab_size", &ModelConfig::vocab_size, 1 << 26},
}};
constexpr SizeField kKeyValueHeads = {"num_key_value_heads", &ModelConfig::num_key_value_heads, 1 << 12};
constexpr SizeField kHeadDim = {"head_dim", &ModelConfig::head_dim, 1 << 12};
constexpr SizeField kPositions = {"max_position_embeddings", &ModelConfig::max_position_embeddings, 1 << 30};

constexpr std::int64_t kDefaultPositions = 2048;
constexpr double kDefaultEps = 1e-6;
constexpr double kDefaultTheta = 10000.0;
constexpr Token kDefaultBos = 1;
constexpr Token kDefaultEos = 2;

// The field's value; nullptr if it is absent or null, which mean the same in config.json.
const Json* get(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Result<void> read_size(const Json& root, const SizeField& field, std::optional<std::int64_t> fallback,
                       ModelConfig& config) {
  const Json* value = get(root, field.name);
  if (value == nullptr && fallback) {
    config.*field.member = *fallback;
    return {};
  }
  if (value == nullptr) return fail(Code::kInvalidArgument, "the field '{}' is missing", field.name);
  if (!value->is_number_unsigned() || value->get<std::uint64_t>() == 0 ||
      value->get<std::uint64_t>() > static_cast<std::uint64_t>(field.largest))
    return fail(Code::kInvalidArgument, "{} is {}; it must be a whole number from 1 to {}", field.name,
                brief(*value), field.largest);
  config.*field.member = value->get<std::int64_t>();
  return {};
}

Result<double> read_number(const Json& object, const char* name, double fallback) {
  const Json* value = get(object, name);
  if (value == nullptr) return fallback;
  if (!value->is_number() || !std::isfinite(value->get<double>()))
    return fail(Code::kInvalidArgument, "{} is {}; it must be a number", name, brief(*value));
  return value->get<double>();
}

Result<bool> read_bool(const Json& root, const char* name, bool fallback) {
  const Json* value = get(root, name);
  if (value == nullptr) return fallback;
  if (!value->is_boolean())
    return fail(Code::kInvalidArgument, "{} is {}; it must be true or false", name, brief(*value));
  return value->get<bool>();
}

Result<void> require_false(const Json& root, const char* name) {
  RONDO_ASSIGN(const bool value, read_bool(root, name, false));
  if (value)
    return fail(Code::kUnsupported, "{} is true; only models without these biases are supported", name);
  return {};
}

std::string supported_architectures() {
  std::string names;
  for (const ArchitectureRow& row : kArchitectures)
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

Result<Architecture> read_architecture(const Json& root) {
  const Json* value = get(root, "architectures");
  if (value == nullptr || !value->is_array() || value->size() != 1 || !value->front().is_string())
    return fail(Code::kInvalidArgument, "architectures is {}; it must be a list of one name. Supported: {}",
                value == nullptr ? "missing" : brief(*value), supported_architectures());
  const auto& name = value->front().get_ref<const std::string&>();
  for (const ArchitectureRow& row : kArchitectures)
    if (row.name == name) return row.architecture;
  return fail(Code::kUnsupported, "architectures is [{}]; supported: {}", brief(value->front()),
              supported_architectures());
}

Result<void> read_sizes(const Json& root, ModelConfig& config) {
  for (const SizeField& field : kSizes) RONDO_TRY(read_size(root, field, std::nullopt, config));
  const std::int64_t heads = config.num_attention_heads;
  RONDO_TRY(read_size(root, kKeyValueHeads, heads, config));
  RONDO_TRY(read_size(root, kPositions, kDefaultPositions, config));
  if (heads % config.num_key_value_heads != 0)
    return fail(Code::kInvalidArgument,
                "num_attention_heads is {} and num_key_value_heads is {}; the first must be a "
                "multiple of the second",
                heads, config.num_key_value_heads);
  if (get(root, "head_dim") == nullptr && config.hidden_size % heads != 0)
    return fail(Code::kInvalidArgument,
                "hidden_size is {} and num_attention_heads is {}; without head_dim the first must "
                "be a multiple of the second",
                config.hidden_size, heads);
  RONDO_TRY(read_size(root, kHeadDim, config.hidden_size / heads, config));
  if (config.head_dim % 2 != 0)
    return fail(Code::kUnsupported, "head_dim is {}; rotary embedding needs an even number", config.head_dim);
  return {};
}

// `where` is the object's name in messages. Only the plain rotary embedding is supported.
Result<void> check_rope_type(const Json& rope, const char* where) {
  if (!rope.is_object())
    return fail(Code::kInvalidArgument, "{} is {}; it must be an object", where, brief(rope));
  for (const char* name : {"rope_type", "type"})
    if (const Json* type = get(rope, name); type != nullptr && *type != "default")
      return fail(Code::kUnsupported, "{}.{} is {}; supported: \"default\"", where, name, brief(*type));
  for (const char* name : {"factor", "partial_rotary_factor"}) {
    RONDO_ASSIGN_CTX(const double factor, read_number(rope, name, 1.0), where);
    if (factor != 1.0) return fail(Code::kUnsupported, "{}.{} is {}; supported: 1", where, name, factor);
  }
  return {};
}

// Two layouts: rope_theta and rope_scaling at the top, or both inside rope_parameters (transformers 5).
Result<void> read_rope(const Json& root, ModelConfig& config) {
  if (const Json* scaling = get(root, "rope_scaling")) RONDO_TRY(check_rope_type(*scaling, "rope_scaling"));
  RONDO_ASSIGN(const double partial, read_number(root, "partial_rotary_factor", 1.0));
  if (partial != 1.0) return fail(Code::kUnsupported, "partial_rotary_factor is {}; supported: 1", partial);
  RONDO_ASSIGN(config.rope_theta, read_number(root, "rope_theta", kDefaultTheta));
  if (const Json* parameters = get(root, "rope_parameters")) {
    RONDO_TRY(check_rope_type(*parameters, "rope_parameters"));
    RONDO_ASSIGN_CTX(const double theta, read_number(*parameters, "rope_theta", config.rope_theta),
                     "rope_parameters");
    if (get(root, "rope_theta") != nullptr && theta != config.rope_theta)
      return fail(Code::kInvalidArgument,
                  "rope_theta is {} but rope_parameters.rope_theta is {}; remove one of them",
                  config.rope_theta, theta);
    config.rope_theta = theta;
  }
  if (config.rope_theta <= 1)
    return fail(Code::kInvalidArgument, "rope_theta is {}; it must be above 1", config.rope_theta);
  return {};
}

Result<std::vector<Token>> read_token_ids(const Json& root, const char* name, std::vector<Token> fallback,
                                          std::int64_t vocab_size) {
  if (!root.contains(name)) return fallback;
  const Json& value = root.at(name);
  if (value.is_null()) return std::vector<Token>();
  std::vector<Token> ids;
  for (const Json& id : value.is_array() ? value : Json::array({value})) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(vocab_size))
      return fail(Code::kInvalidArgument, "{} has {}; ids are whole numbers below the vocabulary size {}",
                  name, brief(id), vocab_size);
    ids.push_back(id.get<Token>());
  }
  return ids;
}

// transformers 5 writes "dtype", older ones "torch_dtype".
Result<DType> read_dtype(const Json& root) {
  for (const char* name : {"dtype", "torch_dtype"}) {
    const Json* value = get(root, name);
    if (value == nullptr) continue;
    if (!value->is_string())
      return fail(Code::kInvalidArgument, "{} is {}; it must be a name", name, brief(*value));
    RONDO_ASSIGN_CTX(const DType dtype, parse_config_dtype(value->get_ref<const std::string&>()), name);
    return dtype;
  }
  return DType::kFp32;
}

Result<void> read_block(const Json& root, ModelConfig& config) {
  RONDO_ASSIGN(config.rms_norm_eps, read_number(root, "rms_norm_eps", kDefaultEps));
  if (!(config.rms_norm_eps > 0 && config.rms_norm_eps < 1))
    return fail(Code::kInvalidArgument, "rms_norm_eps is {}; it must lie between 0 and 1",
                config.rms_norm_eps);
  const Json* act = get(root, "hidden_act");
  if (act != nullptr && *act != "silu")
    return fail(Code::kUnsupported, "hidden_act is {}; supported: \"silu\"", brief(*act));
  config.hidden_act = "silu";
  RONDO_TRY(require_false(root, "attention_bias"));
  RONDO_TRY(require_false(root, "mlp_bias"));
  if (get(root, "quantization_config") != nullptr)
    return fail(Code::kUnsupported, "quantization_config is set; only unquantised weights are supported");
  return {};
}

Result<void> read_fields(const Json& root, ModelConfig& config) {
  RONDO_ASSIGN(config.architecture, read_architecture(root));
  RONDO_TRY(read_sizes(root, config));
  RONDO_TRY(read_block(root, config));
  RONDO_TRY(read_rope(root, config));
  RONDO_ASSIGN(config.tie_word_embeddings, read_bool(root, "tie_word_embeddings", false));
  RONDO_ASSIGN(config.bos_token_ids, read_token_ids(root, "bos_token_id", {kDefaultBos}, config.vocab_size));
  RONDO_ASSIGN(config.eos_token_ids, read_token_ids(root, "eos_token_id", {kDefaultEos}, config.vocab_size));
  RONDO_ASSIGN(config.dtype, read_dtype(root));
  return {};
}

Result<Json> parse_object(std::string_view text) {
  if (text.size() > kMaxText)
    return fail(Code::kDataLoss, "{} bytes long; no configuration has more than {}", text.size(), kMaxText);
  RONDO_ASSIGN(Json root, parse_strict_json<Json>(text, kMaxDepth));
  if (!root.is_object()) return fail(Code::kDataLoss, "it must hold one JSON object, not {}", brief(root));
  return root;
}

}  // namespace

std::string_view architecture_name(Architecture architecture) {
  for (const ArchitectureRow& row : kArchitectures)
    if (row.architecture == architecture) return row.name;
  RONDO_CHECK(false);
}

Result<ModelConfig> ModelConfig::parse(std::string_view json) {
  RONDO_ASSIGN(const Json root, parse_object(json));
  ModelConfig config;
  RONDO_TRY(read_fields(root, config));
  config.raw = json;
  return config;
}

Result<ModelConfig> ModelConfig::read(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  RONDO_ASSIGN_CTX(const std::string text, read_file(path), "reading the model's configuration");
  RONDO_ASSIGN_CTX(ModelConfig config, parse(text), path.string());
  const fs::path generation = folder / "generation_config.json";
  auto generation_text = read_file(generation);
  if (!generation_text && generation_text.error().code() == Code::kNotFound) return config;
  RONDO_ASSIGN(const std::string present, std::move(generation_text));
  RONDO_ASSIGN_CTX(const Json root, parse_object(present), generation.string());
  if (get(root, "eos_token_id") == nullptr) return config;
  RONDO_ASSIGN_CTX(config.eos_token_ids, read_token_ids(root, "eos_token_id", {}, config.vocab_size),
                   generation.string());
  return config;
}

std::string ModelConfig::to_json(DType stored) const {
  Json root = Json::parse(raw);
  bool written = false;
  for (const char* name : {"dtype", "torch_dtype"}) {
    if (!root.contains(name)) continue;
    root[name] = dtype_config_name(stored);
    written = true;
  }
  if (!written) root["torch_dtype"] = dtype_config_name(stored);
  return root.dump(2) + "\n";
}

}  // namespace rondo::hf
