#include "engine/stop_condition.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace rondo::engine {
namespace {

// Room for the text of one token, so that pushing rarely allocates; longer ones only cost time.
constexpr std::size_t kTokenBytes = 64;

}  // namespace

StopCondition::StopCondition(std::shared_ptr<const StopRules> rules, const text::Tokenizer* tokenizer)
    : rules_(std::move(rules)) {
  for (const std::string& s : rules_->strings) longest_ = std::max(longest_, s.size());
  if (longest_ == 0) return;
  RONDO_CHECK(tokenizer != nullptr);
  decoder_.emplace(*tokenizer, true);
  tail_.reserve(longest_ + kTokenBytes);
}

std::optional<batch::FinishReason> StopCondition::push(Token token) {
  if (std::find(rules_->tokens.begin(), rules_->tokens.end(), token) != rules_->tokens.end())
    return batch::FinishReason::kStopToken;
  if (!decoder_) return std::nullopt;
  tail_ += decoder_->feed(token);
  for (const std::string& s : rules_->strings)
    if (!s.empty() && tail_.find(s) != std::string::npos) return batch::FinishReason::kStopString;
  if (tail_.size() >= longest_) tail_.erase(0, tail_.size() - (longest_ - 1));
  return std::nullopt;
}

}  // namespace rondo::engine
