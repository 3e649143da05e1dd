// One JSON object per line, with errors that say where; for parsers of such files.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace rondo::data {

/// A line longer than this is taken for a file that is not jsonl.
inline constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20;

/// What is done with a row.
using JsonRowBody = std::function<Result<void>(const nlohmann::json& row, std::int64_t line)>;

/// Calls `body` with each row of `bytes` and its line (from 1 on), and stops at the first error, which is
/// given the context "<name>:<line>". A byte order mark, CRLF line ends, blank lines and a missing last line
/// end are accepted. Rejects what is not a JSON object in UTF-8, NUL bytes, and nesting deep enough to
/// exhaust the stack. Returns the number of rows.
Result<std::int64_t> for_each_json_line(std::string_view bytes, const std::string& name,
                                        const JsonRowBody& body);

/// The value as compact JSON in UTF-8; bytes that are not UTF-8 become U+FFFD.
std::string to_json_text(const nlohmann::json& value);

}  // namespace rondo::data
