// PromptSet: the rows of a dataset as token sequences, ready to be rolled out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "data/prompt_row.h"
#include "rl/config.h"
#include "text/tokenizer.h"

namespace rondo::rl {

/// One prompt, tokenised.
struct Prompt {
  data::PromptRow row;
  std::string text;                                  // as the model sees it
  std::shared_ptr<const std::vector<Token>> tokens;  // at least one
};

/// All usable prompts of some files, in file order. Immutable.
struct PromptSet {
  std::vector<Prompt> prompts;
  std::int64_t skipped = 0;  // longer than data.max_prompt_length
};

/// Renders and tokenises rows. kInvalidArgument if nothing usable is left, or for a long prompt where the
/// config says so.
Result<PromptSet> tokenize_prompts(std::vector<data::PromptRow> rows, const DataSection& config,
                                   const std::string& model_folder, const text::Tokenizer& tokenizer);

/// The rows of files. kInvalidArgument, with file and line, for a bad row; and as tokenize_prompts.
Result<PromptSet> load_prompts(const std::vector<std::string>& files, const DataSection& config,
                               const std::string& model_folder, const text::Tokenizer& tokenizer,
                               data::GroundTruth ground_truth);

}  // namespace rondo::rl
