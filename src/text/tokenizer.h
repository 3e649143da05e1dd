// Tokenizer: text to token ids and back, from a Hugging Face tokenizer.json.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "base/status.h"

namespace rondo::text {

struct EncodeOptions {
  /// Adds what the file's template puts around a text, e.g. a BOS token.
  bool add_special_tokens = false;
  /// Turns the text of a special token into that token; otherwise it is encoded like any other text.
  bool parse_special = true;
};

/// Byte-level BPE with added tokens, as the `tokenizers` library computes it.
///
/// Reads the tokenizers of GPT-2, SmolLM2, Llama-3 and Qwen2/3 and whatever is built from the same parts
/// (see tokenizer_spec.h); any other kind is kUnsupported. Does not truncate or pad, whatever the file says
/// about it. Immutable apart from a cache that changes no result; any thread.
class Tokenizer final {
 public:
  static Result<std::unique_ptr<const Tokenizer>> from_file(const std::filesystem::path& path);
  static Result<std::unique_ptr<const Tokenizer>> from_json(std::string_view json);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Ill-formed UTF-8 counts as U+FFFD, one for each maximal ill-formed part. Precondition: below 2^31 bytes.
  std::vector<Token> encode(std::string_view text, EncodeOptions options = {}) const;

  /// The text of `tokens`, valid UTF-8: bytes that form no character become U+FFFD. Skips ids that are no
  /// tokens, and special tokens if `skip_special`.
  std::string decode(std::span<const Token> tokens, bool skip_special) const;

  /// The bytes that a token adds to the decoded text, maybe half a character; empty for ids that are no
  /// tokens.
  std::string_view token_bytes(Token id) const;

  /// One more than the largest id.
  int vocab_size() const;
  /// Names are those of the file, e.g. "Ġthe".
  std::optional<Token> token_to_id(std::string_view name) const;
  std::optional<std::string_view> id_to_token(Token id) const;
  /// Whether the file marks it as special; false for ids that are no tokens.
  bool is_special(Token id) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace rondo::text
