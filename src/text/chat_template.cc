#include "text/chat_template.h"

#include <algorithm>

#include "base/text_distance.h"
#include "text/chat_template_file.h"
#include "text/template_form.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace rondo::text {
namespace {

// The formats that are recognised, in Jinja, as their models' folders say them. DEFAULT stands for the text
// of a default system turn.
constexpr std::string_view kChatMlSource =
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>{{ '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
constexpr std::string_view kChatMlDefaultSource =
    "{% for message in messages %}"
    "{% if loop.first and messages[0].role != 'system' %}"
    "{{ '<|im_start|>system\\nDEFAULT<|im_end|>\\n' }}{% endif %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>{{ '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
constexpr std::string_view kLlama3Source =
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n'"
    " + message.content | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
    "{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";

constexpr std::string_view kOptions =
    "set data.chat_template to \"chatml\" or \"llama3\" to use one of those formats";

// The text at DEFAULT if `form` is otherwise that of kChatMlDefaultSource.
std::optional<std::string> default_system_of(std::string_view form) {
  static constexpr std::string_view kHole = "DEFAULT";
  const std::string whole = template_form(kChatMlDefaultSource);
  const std::size_t hole = whole.find(kHole);
  const std::string_view head = std::string_view(whole).substr(0, hole);
  const std::string_view tail = std::string_view(whole).substr(hole + kHole.size());
  if (form.size() < head.size() + tail.size() || !form.starts_with(head) || !form.ends_with(tail))
    return std::nullopt;
  const std::string_view text = form.substr(head.size(), form.size() - head.size() - tail.size());
  const bool has_tags = std::any_of(
      text.begin(), text.end(), [](char c) { return c == kFormBlock || c == kFormValue || c == kFormClose; });
  if (has_tags) return std::nullopt;
  return std::string(text);
}

// What Python's str.strip() takes for white space: White_Space and the separators U+001C to U+001F.
bool is_stripped(char32_t value) {
  return is_white_space(value) || (value >= 0x1C && value <= 0x1F);
}

// Precondition: valid UTF-8.
std::string_view strip(std::string_view text) {
  while (!text.empty()) {
    const CodePoint first = code_point_at(text.data());
    if (!is_stripped(first.value)) break;
    text.remove_prefix(first.size);
  }
  while (!text.empty()) {
    const CodePoint last = code_point_before(text.data(), text.data() + text.size());
    if (!is_stripped(last.value)) break;
    text.remove_suffix(last.size);
  }
  return text;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::create(std::string_view kind, const std::filesystem::path& model_folder) {
  if (kind == "chatml") return ChatTemplate(Format::kChatMl);
  if (kind == "llama3") return from_source(kLlama3Source, "<|begin_of_text|>");
  if (kind != "model")
    return fail(Code::kInvalidArgument,
                "data.chat_template is \"{}\"; it is one of model, chatml, llama3 (did you mean \"{}\"?)",
                kind, nearest_name(kind, {"model", "chatml", "llama3"}));
  RONDO_ASSIGN(const ChatTemplateFile file, read_chat_template(model_folder));
  if (file.source.empty())
    return fail(Code::kNotFound,
                "{} has no chat template (chat_template.jinja, or \"chat_template\" in "
                "tokenizer_config.json); {}",
                model_folder.string(), kOptions);
  RONDO_ASSIGN_CTX(auto result, from_source(file.source, file.bos_token), model_folder.string());
  return result;
}

Result<ChatTemplate> ChatTemplate::from_source(std::string_view source,
                                               std::optional<std::string> bos_token) {
  const std::string form = template_form(source);
  if (form == template_form(kChatMlSource)) return ChatTemplate(Format::kChatMl);
  if (auto system = default_system_of(form)) {
    ChatTemplate result(Format::kChatMl);
    result.default_system_ = std::move(system);
    return result;
  }
  if (form == template_form(kLlama3Source)) {
    if (!bos_token)
      return fail(Code::kDataLoss, "the Llama-3 chat template needs \"bos_token\" in tokenizer_config.json");
    ChatTemplate result(Format::kLlama3);
    result.bos_token_ = std::move(*bos_token);
    return result;
  }
  return fail(
      Code::kUnsupported,
      "the model's chat template is none of those known here (ChatML with or without a default system "
      "turn, Llama-3); {}",
      kOptions);
}

void ChatTemplate::render_chatml(const Message& message, std::string& out) const {
  out.append("<|im_start|>").append(message.role).append("\n");
  out.append(message.content).append("<|im_end|>\n");
}

void ChatTemplate::render_llama3(const Message& message, std::string& out) const {
  std::string content;
  append_lossy(message.content, content);
  out.append("<|start_header_id|>").append(message.role).append("<|end_header_id|>\n\n");
  out.append(strip(content)).append("<|eot_id|>");
}

Result<std::string> ChatTemplate::render(std::span<const Message> messages,
                                         bool add_generation_prompt) const {
  if (messages.empty()) return fail(Code::kInvalidArgument, "a conversation needs at least one message");
  const bool chatml = format_ == Format::kChatMl;
  std::string out = bos_token_;
  if (default_system_ && messages.front().role != "system")
    render_chatml({.role = "system", .content = *default_system_}, out);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role.empty())
      return fail(Code::kInvalidArgument, "message {} of the conversation has no role", i);
    chatml ? render_chatml(messages[i], out) : render_llama3(messages[i], out);
  }
  if (add_generation_prompt)
    out.append(chatml ? "<|im_start|>assistant\n" : "<|start_header_id|>assistant<|end_header_id|>\n\n");
  return out;
}

}  // namespace rondo::text
