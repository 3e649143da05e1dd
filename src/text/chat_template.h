// ChatTemplate: messages to the text that a chat model was trained on.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace rondo::text {

struct Message {
  std::string role;
  std::string content;
};

/// Renders conversations in ChatML or in Llama-3's format.
///
/// Does not run Jinja: a model's own template is recognised by what it says (any spelling of plain ChatML, of
/// ChatML with a default system turn, as SmolLM2 and Qwen2 have it, and of Llama-3's), and any other is an
/// error. Does not escape: a special token's text inside a message stays what it is. Immutable; any thread.
class ChatTemplate final {
 public:
  /// `kind` is `data.chat_template`: "model" takes the template of the folder (chat_template.jinja, else
  /// "chat_template" in tokenizer_config.json), "chatml" and "llama3" need no folder.
  static Result<ChatTemplate> create(std::string_view kind, const std::filesystem::path& model_folder);

  /// The text of `messages`, then the opening of the assistant's turn if `add_generation_prompt`.
  /// kInvalidArgument for no messages or a message without a role.
  Result<std::string> render(std::span<const Message> messages, bool add_generation_prompt) const;

  /// For a template whose Jinja source is at hand; `bos_token` is what it prints for that name, if known.
  static Result<ChatTemplate> from_source(std::string_view source, std::optional<std::string> bos_token);

 private:
  enum class Format { kChatMl, kLlama3 };
  explicit ChatTemplate(Format format) : format_(format) {}

  void render_chatml(const Message& message, std::string& out) const;
  void render_llama3(const Message& message, std::string& out) const;

  Format format_;
  std::optional<std::string> default_system_;  // ChatML: the system turn where none is given
  std::string bos_token_;                      // Llama-3
};

}  // namespace rondo::text
