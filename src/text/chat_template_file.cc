#include "text/chat_template_file.h"

#include <nlohmann/json.hpp>

#include "base/file.h"

namespace rondo::text {
namespace {

using Json = nlohmann::json;

// A special token is written as its text or as an object with the text as "content".
std::optional<std::string> token_text(const Json& config, const char* name) {
  const auto found = config.find(name);
  if (found == config.end()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object() && found->contains("content") && (*found)["content"].is_string())
    return (*found)["content"].get<std::string>();
  return std::nullopt;
}

Result<std::string> template_text(const Json& config, const std::filesystem::path& path) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::string();
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array())
    for (const Json& entry : *found)
      if (entry.is_object() && entry.value("name", Json()) == "default" && entry.contains("template") &&
          entry["template"].is_string())
        return entry["template"].get<std::string>();
  return fail(Code::kDataLoss,
              "{}: chat_template is neither a string nor a list with an entry named \"default\"",
              path.string());
}

}  // namespace

Result<ChatTemplateFile> read_chat_template(const std::filesystem::path& folder) {
  ChatTemplateFile file;
  std::error_code ignored;
  const std::filesystem::path config_path = folder / "tokenizer_config.json";
  if (std::filesystem::exists(config_path, ignored)) {
    RONDO_ASSIGN(const std::string text, read_file(config_path));
    const Json config = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!config.is_object()) return fail(Code::kDataLoss, "{} is not a JSON object", config_path.string());
    file.bos_token = token_text(config, "bos_token");
    RONDO_ASSIGN(file.source, template_text(config, config_path));
  }
  const std::filesystem::path jinja_path = folder / "chat_template.jinja";
  if (std::filesystem::exists(jinja_path, ignored)) {
    RONDO_ASSIGN(file.source, read_file(jinja_path));
  }
  return file;
}

}  // namespace rondo::text
