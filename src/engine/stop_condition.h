// StopRules and StopCondition: what ends a response besides its length.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/id.h"
#include "batch/sequence.h"
#include "text/incremental_decoder.h"
#include "text/tokenizer.h"

namespace rondo::engine {

/// Tokens and strings that end a response; shared by the requests of a run.
struct StopRules {
  std::vector<Token> tokens;  // the token is part of the response
  std::vector<std::string>
      strings;  // matched against the response's text; the token that completes one is its last
};

/// Watches one response token by token. A stop string may begin inside any token and span several.
class StopCondition final {
 public:
  /// `tokenizer` is needed, and must outlive this, if there are strings.
  StopCondition(std::shared_ptr<const StopRules> rules, const text::Tokenizer* tokenizer);

  /// Takes the next token; says why the response ends with it, if it does.
  std::optional<batch::FinishReason> push(Token token);

 private:
  std::shared_ptr<const StopRules> rules_;
  std::optional<text::IncrementalDecoder> decoder_;
  std::string tail_;         // the end of the text, as long as a match may need
  std::size_t longest_ = 0;  // bytes of the longest stop string
};

}  // namespace rondo::engine
