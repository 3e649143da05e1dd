#include "text/tokenizer_spec.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/text_distance.h"

namespace rondo::text {
namespace {

using Json = nlohmann::json;

// Sequences within sequences: more is a file made to exhaust the stack.
constexpr int kMaxDepth = 8;

// A JSON value and where it stands, for messages.
struct Node {
  const Json* json;
  std::string path;

  bool is_null() const { return json->is_null(); }
  Node at(const char* key) const {
    static const Json null;
    const auto found = json->find(key);
    return {found == json->end() ? &null : &*found, path.empty() ? key : path + "." + key};
  }
  Node at(std::size_t index) const { return {&(*json)[index], fmt::format("{}[{}]", path, index)}; }
};

tl::unexpected<Status> wrong_type(const Node& node, const char* wanted) {
  return fail(Code::kDataLoss, "{} must be {}, not {}; the file is damaged or not a tokenizer.json",
              node.path, wanted, node.is_null() ? "missing" : node.json->type_name());
}

Result<Node> object(const Node& node) {
  if (!node.json->is_object()) return wrong_type(node, "an object");
  return node;
}

Result<Node> array(const Node& node) {
  if (!node.json->is_array()) return wrong_type(node, "an array");
  return node;
}

Result<std::string> string(const Node& node) {
  if (!node.json->is_string()) return wrong_type(node, "a string");
  return node.json->get<std::string>();
}

Result<bool> boolean(const Node& node, bool fallback) {
  if (node.is_null()) return fallback;
  if (!node.json->is_boolean()) return wrong_type(node, "true or false");
  return node.json->get<bool>();
}

Result<Token> token_id(const Node& node) {
  if (!node.json->is_number_integer()) return wrong_type(node, "a token id");
  const bool in_range =
      node.json->is_number_unsigned() ? node.json->get<std::uint64_t>() < kMaxTokenId : false;
  if (!in_range)
    return fail(Code::kDataLoss, "{} is {}, but token ids lie in [0, {})", node.path, node.json->dump(),
                kMaxTokenId);
  return node.json->get<Token>();
}

Result<std::string> type_of(const Node& node, const std::vector<std::string>& supported) {
  RONDO_TRY(object(node));
  RONDO_ASSIGN(std::string type, string(node.at("type")));
  if (std::find(supported.begin(), supported.end(), type) == supported.end())
    return fail(Code::kUnsupported, "{}.type is \"{}\"; supported here: {} (byte-level BPE tokenizers only)",
                node.path, type, fmt::join(supported, ", "));
  return type;
}

// A key that is not known could change the ids, so it is refused instead of being passed over.
Result<void> only_keys(const Node& node, const std::vector<std::string>& known) {
  for (const auto& item : node.json->items())
    if (std::find(known.begin(), known.end(), item.key()) == known.end())
      return fail(Code::kUnsupported, "{} has the unknown field \"{}\" (the nearest known one is \"{}\")",
                  node.path, item.key(), nearest_name(item.key(), known));
  return {};
}

// ---- normalizer ----

Result<bool> parse_normalizer(const Node& node, int depth) {
  if (node.is_null()) return false;
  if (depth == kMaxDepth) return fail(Code::kUnsupported, "{} is nested too deeply", node.path);
  RONDO_ASSIGN(const std::string type, type_of(node, {"NFC", "Sequence"}));
  if (type == "NFC") return true;
  RONDO_ASSIGN(const Node list, array(node.at("normalizers")));
  bool nfc = false;
  for (std::size_t i = 0; i < list.json->size(); ++i) {
    RONDO_ASSIGN(const bool one, parse_normalizer(list.at(i), depth + 1));
    nfc = nfc || one;
  }
  return nfc;
}

// ---- pre_tokenizer ----

Result<SplitStep> parse_split(const Node& node) {
  // "invert" swaps matches and what lies between them, which isolates the same pieces.
  RONDO_TRY(only_keys(node, {"type", "pattern", "behavior", "invert"}));
  RONDO_ASSIGN(const std::string behavior, string(node.at("behavior")));
  if (behavior != "Isolated")
    return fail(Code::kUnsupported, "{}.behavior is \"{}\"; only \"Isolated\" is supported", node.path,
                behavior);
  RONDO_ASSIGN(const Node pattern, object(node.at("pattern")));
  RONDO_TRY(only_keys(pattern, {"Regex", "String"}));
  SplitStep step;
  step.literal = !pattern.at("String").is_null();
  RONDO_ASSIGN(step.pattern, string(pattern.at(step.literal ? "String" : "Regex")));
  return step;
}

Result<PreTokenizerStep> parse_step(const Node& node, const std::string& type) {
  if (type == "Split") return parse_split(node);
  if (type == "Digits") {
    RONDO_TRY(only_keys(node, {"type", "individual_digits"}));
    RONDO_ASSIGN(const bool individual, boolean(node.at("individual_digits"), false));
    return DigitsStep{individual};
  }
  RONDO_TRY(only_keys(node, {"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  ByteLevelStep step;
  RONDO_ASSIGN(step.add_prefix_space, boolean(node.at("add_prefix_space"), true));
  RONDO_ASSIGN(step.use_regex, boolean(node.at("use_regex"), true));
  return step;
}

Result<void> parse_pre_tokenizer(const Node& node, int depth, std::vector<PreTokenizerStep>& steps) {
  if (depth == kMaxDepth) return fail(Code::kUnsupported, "{} is nested too deeply", node.path);
  RONDO_ASSIGN(const std::string type, type_of(node, {"ByteLevel", "Digits", "Split", "Sequence"}));
  if (type != "Sequence") {
    if (!steps.empty() && std::holds_alternative<ByteLevelStep>(steps.back()))
      return fail(Code::kUnsupported, "{} comes after ByteLevel, which must be the last step", node.path);
    RONDO_ASSIGN(auto step, parse_step(node, type));
    steps.push_back(std::move(step));
    return {};
  }
  RONDO_ASSIGN(const Node list, array(node.at("pretokenizers")));
  for (std::size_t i = 0; i < list.json->size(); ++i)
    RONDO_TRY(parse_pre_tokenizer(list.at(i), depth + 1, steps));
  return {};
}

// ---- post_processor ----

Result<void> parse_template(const Node& node, TokenizerSpec& spec) {
  RONDO_ASSIGN(const Node single, array(node.at("single")));
  bool after_text = false;
  for (std::size_t i = 0; i < single.json->size(); ++i) {
    RONDO_ASSIGN(const Node item, object(single.at(i)));
    if (!item.at("Sequence").is_null()) {
      if (after_text) return fail(Code::kUnsupported, "{} repeats the text", item.path);
      after_text = true;
      continue;
    }
    RONDO_ASSIGN(const Node special, object(item.at("SpecialToken")));
    RONDO_ASSIGN(const std::string name, string(special.at("id")));
    RONDO_ASSIGN(const Node table, object(node.at("special_tokens")));
    RONDO_ASSIGN(const Node entry, object(table.at(name.c_str())));
    RONDO_ASSIGN(const Node ids, array(entry.at("ids")));
    for (std::size_t k = 0; k < ids.json->size(); ++k) {
      RONDO_ASSIGN(const Token id, token_id(ids.at(k)));
      (after_text ? spec.suffix : spec.prefix).push_back(id);
    }
  }
  if (!after_text) return fail(Code::kUnsupported, "{}.single has no place for the text", node.path);
  return {};
}

Result<void> parse_post_processor(const Node& node, int depth, TokenizerSpec& spec) {
  if (node.is_null()) return {};
  if (depth == kMaxDepth) return fail(Code::kUnsupported, "{} is nested too deeply", node.path);
  RONDO_ASSIGN(const std::string type, type_of(node, {"ByteLevel", "TemplateProcessing", "Sequence"}));
  if (type == "ByteLevel") return {};  // moves offsets only
  if (type == "TemplateProcessing") {
    if (!spec.prefix.empty() || !spec.suffix.empty())
      return fail(Code::kUnsupported, "{} is a second template", node.path);
    return parse_template(node, spec);
  }
  RONDO_ASSIGN(const Node list, array(node.at("processors")));
  for (std::size_t i = 0; i < list.json->size(); ++i)
    RONDO_TRY(parse_post_processor(list.at(i), depth + 1, spec));
  return {};
}

// ---- model ----

Result<void> refuse_unless_empty(const Node& node) {
  const bool empty =
      node.is_null() || *node.json == nlohmann::json("") || *node.json == false || *node.json == 0;
  if (empty) return {};
  return fail(Code::kUnsupported, "{} is {}, which is not supported", node.path, node.json->dump());
}

Result<std::pair<std::string, std::string>> parse_merge(const Node& node) {
  if (node.json->is_string()) {
    const std::string line = node.json->get<std::string>();
    const std::size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
      return fail(Code::kDataLoss, "{} is \"{}\", which is not two tokens with one space between", node.path,
                  line);
    return std::pair(line.substr(0, space), line.substr(space + 1));
  }
  if (!node.json->is_array() || node.json->size() != 2) return wrong_type(node, "a pair of tokens");
  RONDO_ASSIGN(std::string left, string(node.at(std::size_t{0})));
  RONDO_ASSIGN(std::string right, string(node.at(std::size_t{1})));
  return std::pair(std::move(left), std::move(right));
}

Result<void> parse_vocab(const Node& node, TokenizerSpec& spec) {
  RONDO_TRY(object(node));
  std::unordered_set<Token> seen;
  spec.vocab.reserve(node.json->size());
  for (const auto& item : node.json->items()) {
    RONDO_ASSIGN(const Token id, token_id({&item.value(), node.path + "[\"" + item.key() + "\"]"}));
    if (!seen.insert(id).second)
      return fail(Code::kDataLoss, "{} gives id {} to two tokens, one is \"{}\"", node.path, id, item.key());
    spec.vocab.emplace_back(item.key(), id);
  }
  return {};
}

Result<void> parse_model(const Node& node, TokenizerSpec& spec) {
  RONDO_TRY(object(node));
  if (!node.at("type").is_null()) RONDO_TRY(type_of(node, {"BPE"}));
  RONDO_TRY(
      only_keys(node, {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                       "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"})
    RONDO_TRY(refuse_unless_empty(node.at(key)));
  if (!node.at("unk_token").is_null()) {
    RONDO_ASSIGN(spec.unk_token, string(node.at("unk_token")));
  }
  RONDO_ASSIGN(spec.fuse_unk, boolean(node.at("fuse_unk"), false));
  RONDO_ASSIGN(spec.ignore_merges, boolean(node.at("ignore_merges"), false));
  RONDO_TRY(parse_vocab(node.at("vocab"), spec));
  RONDO_ASSIGN(const Node merges, array(node.at("merges")));
  spec.merges.reserve(merges.json->size());
  for (std::size_t i = 0; i < merges.json->size(); ++i) {
    const Json& merge = (*merges.json)[i];
    if (merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version")) continue;
    RONDO_ASSIGN(auto pair, parse_merge(merges.at(i)));
    spec.merges.push_back(std::move(pair));
  }
  return {};
}

// ---- added_tokens ----

Result<AddedTokenSpec> parse_added_token(const Node& node) {
  RONDO_TRY(object(node));
  AddedTokenSpec token;
  RONDO_ASSIGN(token.id, token_id(node.at("id")));
  RONDO_ASSIGN(token.content, string(node.at("content")));
  RONDO_ASSIGN(token.single_word, boolean(node.at("single_word"), false));
  RONDO_ASSIGN(token.lstrip, boolean(node.at("lstrip"), false));
  RONDO_ASSIGN(token.rstrip, boolean(node.at("rstrip"), false));
  RONDO_ASSIGN(token.special, boolean(node.at("special"), false));
  RONDO_ASSIGN(token.normalized, boolean(node.at("normalized"), !token.special));
  return token;
}

Result<void> parse_added_tokens(const Node& node, TokenizerSpec& spec) {
  if (node.is_null()) return {};
  RONDO_TRY(array(node));
  for (std::size_t i = 0; i < node.json->size(); ++i) {
    RONDO_ASSIGN(AddedTokenSpec token, parse_added_token(node.at(i)));
    if (!token.content.empty()) spec.added_tokens.push_back(std::move(token));
  }
  return {};
}

}  // namespace

Result<TokenizerSpec> parse_tokenizer_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded())
    return fail(Code::kDataLoss, "not valid JSON; the file is truncated or not a tokenizer.json");
  const Node root{&json, ""};
  if (!json.is_object()) return fail(Code::kDataLoss, "not a JSON object, so not a tokenizer.json");
  if (!root.at("version").is_null() && json["version"] != "1.0")
    return fail(Code::kUnsupported, "version is {}; only \"1.0\" is known", json["version"].dump());

  TokenizerSpec spec;
  RONDO_TRY(parse_model(root.at("model"), spec));
  RONDO_TRY(parse_added_tokens(root.at("added_tokens"), spec));
  RONDO_ASSIGN(spec.nfc, parse_normalizer(root.at("normalizer"), 0));
  RONDO_TRY(parse_pre_tokenizer(root.at("pre_tokenizer"), 0, spec.pre_tokenizer));
  if (spec.pre_tokenizer.empty() || !std::holds_alternative<ByteLevelStep>(spec.pre_tokenizer.back()))
    return fail(Code::kUnsupported,
                "pre_tokenizer does not end with ByteLevel (byte-level BPE tokenizers only)");
  RONDO_TRY(parse_post_processor(root.at("post_processor"), 0, spec));
  RONDO_TRY(type_of(root.at("decoder"), {"ByteLevel"}));
  return spec;
}

}  // namespace rondo::text
