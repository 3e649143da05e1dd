// Lengths of the responses of a rollout that has happened, from a jsonl file.
//
// A row is a response: {"prompt_id": any, "sample": integer, "length": integer}, or a row of a rollout dump
// (rollout_dump.h), whose "ordinal" is the prompt and whose "response_tokens" are counted. Others are
// allowed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace rondo::data {

/// Of each prompt, in order of first appearance, the lengths of its samples, by index. At least 1 each.
using ResponseLengths = std::vector<std::vector<std::int32_t>>;

/// kInvalidArgument or kDataLoss, with file and line: no row, a row without one of the three, a length below
/// 1, a sample that is there twice; or the prompt whose samples are not 0, 1, ….
Result<ResponseLengths> read_response_lengths(const std::filesystem::path& path);

/// The same for the bytes of a file; `name` stands for it in messages.
Result<ResponseLengths> parse_response_lengths(std::string_view bytes, const std::string& name);

}  // namespace rondo::data
