// PromptDigest: what a run trains on, in a few bytes, so that a resumed run can tell whether it still does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "rl/prompts.h"

namespace rondo::rl {

/// Number and checksum of a set's prompts: tokens, ground truth and data source of each, in order. What no
/// reward reads (extra_info) and no result depends on (the place of a row in its file) is not in it.
struct PromptDigest {
  std::int64_t prompts = 0;
  std::uint64_t checksum = 0;

  friend bool operator==(const PromptDigest&, const PromptDigest&) = default;
};

PromptDigest digest_of(const PromptSet& set);

/// As a JSON object on a line, and back. kDataLoss if it is none.
std::string prompt_digest_json(const PromptDigest& digest);
Result<PromptDigest> parse_prompt_digest(std::string_view text);

/// How `after` differs from `before`, in words; precondition: it does.
std::string difference(const PromptDigest& before, const PromptDigest& after);

}  // namespace rondo::rl
