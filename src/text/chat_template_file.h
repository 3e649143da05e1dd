// Reads the chat template of a model folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/status.h"

namespace rondo::text {

struct ChatTemplateFile {
  std::string source;                    // Jinja; empty if the folder has none
  std::optional<std::string> bos_token;  // its text, if the folder names one
};

/// chat_template.jinja if it exists, else "chat_template" in tokenizer_config.json: a string, or the entry
/// named "default" of a list of {name, template}. A folder with neither file gives an empty source.
Result<ChatTemplateFile> read_chat_template(const std::filesystem::path& folder);

}  // namespace rondo::text
