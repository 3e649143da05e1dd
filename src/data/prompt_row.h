// PromptRow: one row of a prompt dataset, and reading such rows from jsonl files.
//
// A row is a JSON object on one line:
//
//   {"prompt": "text" | [{"role": "user", "content": "…"}, …],   key: data.prompt_key
//    "data_source": "openai/gsm8k",                              optional; "datasource" is read as well
//    "reward_model": {"ground_truth": "72" | 72},                or "label": …, or "answer": …;
//    data.answer_key "extra_info": any JSON}                                     optional
//
// Other keys are ignored. This is verl's layout; {prompt, label} is that of slime and OpenRLHF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace rondo::data {

/// One turn of a conversation.
struct Message {
  std::string role;  // "system", "user" or "assistant"
  std::string content;

  friend bool operator==(const Message&, const Message&) = default;
};

/// One prompt with what is needed to score a response to it.
struct PromptRow {
  std::vector<Message> messages{};  // the conversation; empty if the prompt is plain text
  std::string text{};               // the plain text, to be tokenised as it is; empty if it is a conversation
  std::string data_source{};        // chooses the reward under reward.function = "auto"; may be empty
  std::string ground_truth{};
  std::string extra_info_json{};  // JSON text; empty if the row has none
  std::int64_t index = 0;         // position in the dataset, all files in order, from 0
  std::string place{};            // for messages: "file:line", from 1; empty if it comes from no file

  bool is_chat() const { return !messages.empty(); }
  /// The prompt as a message names it: "the prompt at train.jsonl:17", or "prompt 1" of those that come from
  /// no file.
  std::string name() const;
  friend bool operator==(const PromptRow&, const PromptRow&) = default;
};

/// Where the fields of a row are found. A key names a column, or a path into one: "extra_info.answer".
struct Config {
  std::string prompt_key = "prompt";
  std::string answer_key = "auto";
  std::string data_source{};

  template <class V>
  void visit(V& v) {
    v.field("prompt_key", prompt_key, "Column with the prompt: text, or a list of {role, content}.");
    v.field("answer_key", answer_key,
            "Column with the ground truth; a dot enters an object (extra_info.answer). auto: the first of "
            "reward_model.ground_truth, label, answer.");
    v.field("data_source", data_source, "data_source of the rows that name none themselves.");
  }
  Result<void> validate() const;
};

/// Whether a row without a ground truth is an error: it is for training, not for plain generation.
enum class GroundTruth { kRequired, kOptional };

/// Reads all rows of `files` in order. No file, an empty file and a bad row are errors that name file and
/// line.
Result<std::vector<PromptRow>> read_prompts(const std::vector<std::string>& files, const Config& config,
                                            GroundTruth ground_truth = GroundTruth::kRequired);

/// The same for the bytes of one file; `name` stands for the file in messages. An empty file is not an error.
Result<std::vector<PromptRow>> parse_prompts(std::string_view bytes, const std::string& name,
                                             const Config& config,
                                             GroundTruth ground_truth = GroundTruth::kRequired);

}  // namespace rondo::data
