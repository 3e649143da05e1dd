#include "data/prompt_row.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/text_distance.h"
#include "data/json_lines.h"

namespace rondo::data {
namespace {

using Json = nlohmann::json;

constexpr std::array<const char*, 3> kAnswerKeys = {"reward_model.ground_truth", "label", "answer"};
// From here on not every integer is a double, so a number may not be what the file says.
constexpr double kExactDoubleLimit = 9007199254740992.0;  // 2^53

// The value at `key`: a column of that name, else a path of object keys joined by dots. Null counts as
// absent.
const Json* find(const Json& row, std::string_view key) {
  if (!row.is_object()) return nullptr;
  if (const auto it = row.find(key); it != row.end()) return it->is_null() ? nullptr : &*it;
  const std::size_t dot = key.find('.');
  if (dot == std::string_view::npos) return nullptr;
  const auto it = row.find(key.substr(0, dot));
  return it == row.end() ? nullptr : find(*it, key.substr(dot + 1));
}

std::string column_names(const Json& row) {
  std::string names;
  for (const auto& [name, value] : row.items()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

Result<Message> parse_message(const Json& item, std::size_t number) {
  const auto where = [&] { return fmt::format("message {} of the prompt", number); };
  if (!item.is_object()) {
    return fail(Code::kInvalidArgument, "{} is a JSON {}, not an object with role and content", where(),
                item.type_name());
  }
  const Json* role = find(item, "role");
  const Json* content = find(item, "content");
  if (role == nullptr || !role->is_string()) {
    return fail(Code::kInvalidArgument, "{} has no role (system, user or assistant)", where());
  }
  if (content == nullptr || !content->is_string()) {
    return fail(Code::kInvalidArgument, "{} has no content that is a string; only text is supported",
                where());
  }
  Message message{role->get<std::string>(), content->get<std::string>()};
  const std::vector<std::string> roles = {"system", "user", "assistant"};
  if (std::find(roles.begin(), roles.end(), message.role) == roles.end()) {
    return fail(Code::kInvalidArgument,
                "{} has the role \"{}\"; nearest valid: \"{}\" (system, user, assistant)", where(),
                message.role, nearest_name(message.role, roles));
  }
  return message;
}

Result<void> parse_prompt(const Json& row, const Config& config, PromptRow& out) {
  const Json* prompt = find(row, config.prompt_key);
  if (prompt == nullptr) {
    return fail(Code::kInvalidArgument, "no prompt: the row has no \"{}\" (it has: {}); set data.prompt_key",
                config.prompt_key, column_names(row));
  }
  if (prompt->is_string()) {
    out.text = prompt->get<std::string>();
  } else if (prompt->is_array()) {
    for (const Json& item : *prompt) {
      RONDO_ASSIGN(Message message, parse_message(item, out.messages.size() + 1));
      out.messages.push_back(std::move(message));
    }
  } else {
    return fail(Code::kInvalidArgument,
                "\"{}\" is a JSON {}; a prompt is text or a list of {{role, content}}", config.prompt_key,
                prompt->type_name());
  }
  if (out.text.empty() && out.messages.empty()) {
    return fail(Code::kInvalidArgument, "the prompt (\"{}\") is empty", config.prompt_key);
  }
  return {};
}

Result<std::string> answer_text(const Json& answer, std::string_view key) {
  if (answer.is_string()) return answer.get<std::string>();
  if (!answer.is_number()) {
    return fail(Code::kInvalidArgument, "\"{}\" is a JSON {}; a ground truth is a string or a number", key,
                answer.type_name());
  }
  if (answer.is_number_float() && std::abs(answer.get<double>()) >= kExactDoubleLimit) {
    return fail(Code::kInvalidArgument, "\"{}\" is a number too large to be exact; write it as a string",
                key);
  }
  return to_json_text(answer);
}

Result<void> parse_answer(const Json& row, const Config& config, GroundTruth rule, PromptRow& out) {
  std::string_view key = config.answer_key;
  const Json* answer = nullptr;
  if (key == "auto") {
    for (std::size_t i = 0; i < kAnswerKeys.size() && answer == nullptr; ++i) {
      key = kAnswerKeys[i];
      answer = find(row, key);
    }
  } else {
    answer = find(row, key);
  }
  if (answer != nullptr) {
    RONDO_ASSIGN(out.ground_truth, answer_text(*answer, key));
  }
  if (out.ground_truth.empty() && rule == GroundTruth::kRequired) {
    return fail(
        Code::kInvalidArgument, "no ground truth under {} (the row has: {}); set data.answer_key",
        config.answer_key == "auto" ? "reward_model.ground_truth, label or answer" : config.answer_key,
        column_names(row));
  }
  return {};
}

Result<PromptRow> parse_row(const Json& row, const Config& config, GroundTruth rule) {
  PromptRow out;
  RONDO_TRY(parse_prompt(row, config, out));
  RONDO_TRY(parse_answer(row, config, rule, out));
  out.data_source = config.data_source;
  for (const char* key : {"data_source", "datasource"}) {
    const Json* source = find(row, key);
    if (source == nullptr) continue;
    if (!source->is_string()) {
      return fail(Code::kInvalidArgument, "\"{}\" is a JSON {}, not a string", key, source->type_name());
    }
    out.data_source = source->get<std::string>();
    break;
  }
  if (const Json* extra = find(row, "extra_info")) out.extra_info_json = to_json_text(*extra);
  return out;
}

Result<void> check_is_jsonl(const std::string& file) {
  std::string extension = std::filesystem::path(file).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (extension != ".parquet") return {};
  return fail(Code::kUnsupported,
              "{0}: parquet is not read here; convert it once with Python: import datasets; "
              "datasets.load_dataset(\"parquet\", data_files=\"{0}\")[\"train\"].to_json(\"{1}\")",
              file, std::filesystem::path(file).replace_extension(".jsonl").string());
}

}  // namespace

std::string PromptRow::name() const {
  return place.empty() ? fmt::format("prompt {}", index + 1) : "the prompt at " + place;
}

Result<void> Config::validate() const {
  if (prompt_key.empty()) {
    return fail(Code::kInvalidArgument, "prompt_key is empty; it names the column with the prompt");
  }
  if (answer_key.empty()) {
    return fail(Code::kInvalidArgument, "answer_key is empty; it is auto or the column with the answer");
  }
  return {};
}

Result<std::vector<PromptRow>> parse_prompts(std::string_view bytes, const std::string& name,
                                             const Config& config, GroundTruth ground_truth) {
  std::vector<PromptRow> rows;
  RONDO_TRY(for_each_json_line(bytes, name, [&](const Json& json, std::int64_t line) -> Result<void> {
    RONDO_ASSIGN(PromptRow row, parse_row(json, config, ground_truth));
    row.index = static_cast<std::int64_t>(rows.size());
    row.place = fmt::format("{}:{}", name, line);
    rows.push_back(std::move(row));
    return {};
  }));
  return rows;
}

Result<std::vector<PromptRow>> read_prompts(const std::vector<std::string>& files, const Config& config,
                                            GroundTruth ground_truth) {
  if (files.empty()) return fail(Code::kInvalidArgument, "no data file is given");
  std::vector<PromptRow> rows;
  for (const std::string& file : files) {
    RONDO_TRY(check_is_jsonl(file));
    RONDO_ASSIGN(const auto mapped, MappedFile::open(file));
    const auto bytes = mapped->bytes();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    RONDO_ASSIGN(std::vector<PromptRow> part, parse_prompts(text, file, config, ground_truth));
    if (part.empty()) return fail(Code::kInvalidArgument, "{} holds no rows", file);
    for (PromptRow& row : part) {
      row.index = static_cast<std::int64_t>(rows.size());
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace rondo::data
