// Rule rewards: how many points a response earns, from its text and the ground truth alone.
//
//   gsm8k           the number after the last "#### " of the last 300 characters, "," removed, must equal the
//                   ground truth as a string. verl's rule: "#### 72." reads as "72." and is wrong.
//   gsm8k_flexible  the last run of digits, points and commas in the last 300 characters, with a minus sign
//   before
//                   it, must equal the ground truth as a string; a lone "." counts only if there is nothing
//                   else. Also verl's: "it is 72." reads as "72." and is wrong, so prefer last_number.
//   last_number     the last decimal number of the response must equal the ground truth as a number: 72, 72.0
//   and
//                   +72 are equal, as are 1,234 and 1234; a full stop after it is not part of it.
//   exact_match     the response without the white space around it, and without one full stop at its end,
//   must
//                   equal the ground truth.
//
// A right answer scores 1, a wrong one in the right form reward.format_score, none at all 0.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace rondo::reward {

enum class Function { kAuto, kGsm8k, kGsm8kFlexible, kLastNumber, kExactMatch };

constexpr auto enum_names(Function) {
  using enum Function;
  return std::array{std::pair{kAuto, "auto"}, std::pair{kGsm8k, "gsm8k"},
                    std::pair{kGsm8kFlexible, "gsm8k_flexible"}, std::pair{kLastNumber, "last_number"},
                    std::pair{kExactMatch, "exact_match"}};
}

struct Config {
  Function function = Function::kAuto;
  double format_score = 0;

  template <class V>
  void visit(V& v) {
    v.field("function", function,
            "How a response is scored; auto: by the row's data_source (openai/gsm8k, rondo/step_sums: gsm8k; "
            "rondo/largest_of_three: exact_match).");
    v.field("format_score", format_score,
            "Score of a wrong answer in the right form; exact_match knows no form and never gives it.");
  }
  Result<void> validate() const;
};

/// What is scored. Borrows: the texts must outlive the call.
struct RewardInput {
  std::string_view data_source{};
  std::string_view response{};  // text, without the token that ended it
  std::string_view ground_truth{};
  std::string_view extra_info_json{};
};

struct RewardResult {
  double score = 0;  // finite
  // Numbers to log beside the score, the same ones for every response of a function: "acc" (1 if right) and,
  // where there is a form to keep, "format" (1 if an answer was found).
  std::vector<std::pair<std::string, double>> extra{};
};

/// Scores one response, in time linear in its length. A pure function of its input; any thread. Fails where
/// the row cannot be scored at all: no function for its data_source, or a ground truth that the function
/// cannot compare.
using RewardFunction = std::function<Result<RewardResult>(const RewardInput&)>;

/// Fails if `config` does not validate.
Result<RewardFunction> make_reward(const Config& config);

/// Checks before a run that a response can score 1 on this row, which no ground truth in the wrong form
/// allows (a worked solution where gsm8k compares a bare number). The message says what the function expects.
Result<void> check_ground_truth(const Config& config, std::string_view data_source,
                                std::string_view ground_truth);

}  // namespace rondo::reward
