#include "reward/reward.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "reward/gsm8k.h"
#include "reward/number.h"

namespace rondo::reward {
namespace {

constexpr std::array kSources = {
    std::pair<std::string_view, Function>{"openai/gsm8k", Function::kGsm8k},
    std::pair<std::string_view, Function>{"rondo/step_sums", Function::kGsm8k},
    std::pair<std::string_view, Function>{"rondo/largest_of_three", Function::kExactMatch}};

constexpr std::string_view kSpace = " \t\n\v\f\r";

std::string_view name_of(Function function) {
  for (const auto& [value, name] : enum_names(function)) {
    if (value == function) return name;
  }
  return "";
}

std::string function_names() {
  std::string names;
  for (const auto& [value, name] : enum_names(Function{})) {
    if (value != Function::kAuto) names.append(names.empty() ? "" : ", ").append(name);
  }
  return names;
}

std::string source_names() {
  std::string names;
  for (const auto& [source, function] : kSources) names.append(names.empty() ? "" : ", ").append(source);
  return names;
}

// For messages: a ground truth may be a whole worked solution.
std::string shortened(std::string_view text) {
  constexpr std::size_t kMaxShown = 60;
  if (text.size() <= kMaxShown) return std::string(text);
  std::size_t end = kMaxShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u) --end;  // between characters
  return std::string(text.substr(0, end)) + "…";
}

std::string_view stripped(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// The function for a row of this source; never kAuto.
Result<Function> resolve(Function function, std::string_view data_source) {
  if (function != Function::kAuto) return function;
  for (const auto& [source, chosen] : kSources) {
    if (source == data_source) return chosen;
  }
  return fail(
      Code::kInvalidArgument,
      "no reward function is known for data_source \"{}\" (known: {}); set reward.function to one of {}",
      data_source, source_names(), function_names());
}

RewardResult with_form(const std::optional<std::string>& answer, std::string_view truth,
                       double format_score) {
  const bool found = answer.has_value();
  const bool right = found && *answer == truth;
  const double wrong_score = found ? format_score : 0.0;
  return {.score = right ? 1.0 : wrong_score,
          .extra = {{"acc", right ? 1.0 : 0.0}, {"format", found ? 1.0 : 0.0}}};
}

RewardResult exact_match(std::string_view response, std::string_view truth) {
  const std::string_view answer = stripped(response);
  const bool right =
      answer == truth || (answer.ends_with('.') && answer.substr(0, answer.size() - 1) == truth);
  const double acc = right ? 1.0 : 0.0;
  return {.score = acc, .extra = {{"acc", acc}}};
}

Result<RewardResult> score(const Config& config, const RewardInput& input) {
  RONDO_ASSIGN(const Function function, resolve(config.function, input.data_source));
  switch (function) {
    case Function::kGsm8k:
      return with_form(gsm8k_answer(input.response), input.ground_truth, config.format_score);
    case Function::kGsm8kFlexible:
      return with_form(gsm8k_flexible_answer(input.response), input.ground_truth, config.format_score);
    case Function::kLastNumber: {
      const auto truth = whole_number(input.ground_truth);
      if (truth) return with_form(last_number(input.response), *truth, config.format_score);
      return fail(Code::kInvalidArgument, "ground truth \"{}\" is not a number, which last_number compares",
                  shortened(input.ground_truth));
    }
    case Function::kExactMatch:
      return exact_match(input.response, input.ground_truth);
    case Function::kAuto:
      break;
  }
  return fail(Code::kInternal, "reward.function {} has no rule", static_cast<int>(function));
}

std::string_view expectation(Function function) {
  switch (function) {
    case Function::kGsm8k:
      return "a bare number such as 72 or -1.5, without commas, units or the worked solution";
    case Function::kGsm8kFlexible:
      return "a bare number such as 72, 1,234 or -1.5, without units or the worked solution";
    case Function::kLastNumber:
      return "one decimal number";
    default:
      return "text without white space around it";
  }
}

}  // namespace

Result<void> Config::validate() const {
  if (!std::isfinite(format_score) || format_score >= 1) {
    return fail(Code::kInvalidArgument,
                "format_score = {}: it must be a finite number below 1, what a right answer earns",
                format_score);
  }
  if (function == Function::kExactMatch && format_score != 0) {
    return fail(Code::kInvalidArgument,
                "format_score = {} has no effect with exact_match, which knows no form; set it to 0",
                format_score);
  }
  return {};
}

Result<RewardFunction> make_reward(const Config& config) {
  RONDO_TRY(config.validate());
  return RewardFunction([config](const RewardInput& input) { return score(config, input); });
}

Result<void> check_ground_truth(const Config& config, std::string_view data_source,
                                std::string_view ground_truth) {
  RONDO_ASSIGN(const Function function, resolve(config.function, data_source));
  const std::string response = (function == Function::kGsm8k ? "#### " : "") + std::string(ground_truth);
  const auto result =
      score(config, {.data_source = data_source, .response = response, .ground_truth = ground_truth});
  if (!ground_truth.empty() && result && result->score == 1) return {};
  return fail(Code::kInvalidArgument, "no response can match the ground truth \"{}\" under {}: it must be {}",
              shortened(ground_truth), name_of(function), expectation(function));
}

}  // namespace rondo::reward
