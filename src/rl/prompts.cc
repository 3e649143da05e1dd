#include "rl/prompts.h"

#include <optional>
#include <utility>

#include "base/log.h"
#include "text/chat_template.h"

namespace rondo::rl {
namespace {

std::vector<text::Message> messages_of(const data::PromptRow& row) {
  std::vector<text::Message> messages;
  for (const data::Message& m : row.messages) messages.push_back({m.role, m.content});
  return messages;
}

}  // namespace

Result<PromptSet> load_prompts(const std::vector<std::string>& files, const DataSection& config,
                               const std::string& model_folder, const text::Tokenizer& tokenizer,
                               data::GroundTruth ground_truth) {
  RONDO_ASSIGN(std::vector<data::PromptRow> rows, data::read_prompts(files, config.columns, ground_truth));
  return tokenize_prompts(std::move(rows), config, model_folder, tokenizer);
}

Result<PromptSet> tokenize_prompts(std::vector<data::PromptRow> rows, const DataSection& config,
                                   const std::string& model_folder, const text::Tokenizer& tokenizer) {
  std::optional<text::ChatTemplate> chat;  // made for the first row that needs it
  PromptSet set;
  for (data::PromptRow& row : rows) {
    if (row.is_chat() && !chat) {
      RONDO_ASSIGN_CTX(chat, text::ChatTemplate::create(config.chat_template, model_folder),
                       "data.chat_template");
    }
    Prompt prompt;
    if (row.is_chat()) {
      RONDO_ASSIGN_CTX(prompt.text, chat->render(messages_of(row), true), row.name());
    } else {
      prompt.text = row.text;
    }
    // A template writes its own special tokens; plain text gets those that the tokenizer adds.
    auto tokens =
        tokenizer.encode(prompt.text, {.add_special_tokens = !row.is_chat(), .parse_special = true});
    const auto length = static_cast<std::int64_t>(tokens.size());
    if (length == 0) return fail(Code::kInvalidArgument, "{} has no tokens; remove the row", row.name());
    if (length > config.max_prompt_length) {
      if (config.overlong_prompts == OverlongPrompts::kError)
        return fail(Code::kInvalidArgument,
                    "{} has {} tokens, more than data.max_prompt_length = {}; raise it, or set "
                    "data.overlong_prompts = \"skip\"",
                    row.name(), length, config.max_prompt_length);
      ++set.skipped;
      continue;
    }
    prompt.tokens = std::make_shared<const std::vector<Token>>(std::move(tokens));
    prompt.row = std::move(row);
    set.prompts.push_back(std::move(prompt));
  }
  if (set.prompts.empty())
    return fail(Code::kInvalidArgument,
                "no prompt has at most data.max_prompt_length = {} tokens ({} are longer)",
                config.max_prompt_length, set.skipped);
  if (set.skipped > 0)
    log::warn("{} of {} prompts are longer than data.max_prompt_length = {} and were skipped", set.skipped,
              set.skipped + static_cast<std::int64_t>(set.prompts.size()), config.max_prompt_length);
  return set;
}

}  // namespace rondo::rl
