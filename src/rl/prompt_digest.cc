#include "rl/prompt_digest.h"

#include <array>
#include <charconv>
#include <exception>
#include <nlohmann/json.hpp>
#include <span>

#include "base/check.h"
#include "base/checksum.h"

namespace rondo::rl {
namespace {

template <class Range>
std::uint64_t checksum_of(const Range& range) {
  return checksum(std::as_bytes(std::span(range)));
}

}  // namespace

PromptDigest digest_of(const PromptSet& set) {
  PromptDigest digest;
  for (const Prompt& prompt : set.prompts) {
    // Each part by its own checksum: so no byte can pass from the end of one to the beginning of the next.
    const std::array<std::uint64_t, 4> parts = {digest.checksum, checksum_of(*prompt.tokens),
                                                checksum_of(prompt.row.ground_truth),
                                                checksum_of(prompt.row.data_source)};
    digest.checksum = checksum_of(parts);
    ++digest.prompts;
  }
  return digest;
}

std::string prompt_digest_json(const PromptDigest& digest) {
  nlohmann::ordered_json json;
  json["prompts"] = digest.prompts;
  json["checksum"] = fmt::format("{:016x}", digest.checksum);
  return json.dump() + "\n";
}

Result<PromptDigest> parse_prompt_digest(std::string_view text) {
  PromptDigest digest;
  std::string digits;
  try {
    const auto json = nlohmann::json::parse(text);
    json.at("prompts").get_to(digest.prompts);
    json.at("checksum").get_to(digits);
  } catch (const std::exception& error) {
    return fail(Code::kDataLoss, "no digest of prompts: {}", error.what());
  }
  constexpr int kHex = 16;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, digest.checksum, kHex);
  if (error != std::errc() || stop != end)
    return fail(Code::kDataLoss, "no digest of prompts: '{}' is no checksum", digits);
  return digest;
}

std::string difference(const PromptDigest& before, const PromptDigest& after) {
  RONDO_CHECK(before != after);
  if (before.prompts != after.prompts)
    return fmt::format("{} prompts -> {} prompts", before.prompts, after.prompts);
  return fmt::format(
      "{} prompts as before, with other tokens, ground truths, data sources or in another order",
      after.prompts);
}

}  // namespace rondo::rl
