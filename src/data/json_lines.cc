#include "data/json_lines.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace rondo::data {
namespace {

using Json = nlohmann::json;

constexpr int kMaxNesting = 256;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// Depth of brackets outside strings. Exact for valid JSON, and never too small for a valid prefix.
int max_nesting(std::string_view line) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

// The library's message, "[json.exception…] parse error at line 1, column 5: reason", from the column on. It
// quotes what it read last, which may be the whole row.
std::string parse_reason(std::string_view message) {
  constexpr std::size_t kMaxReason = 240;
  for (const std::string_view prefix : {"] ", "parse error at line 1, "}) {
    const std::size_t at = message.find(prefix);
    if (at != std::string_view::npos) message.remove_prefix(at + prefix.size());
  }
  if (message.size() <= kMaxReason) return std::string(message);
  std::size_t end = kMaxReason;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0u) == 0x80u) --end;  // between characters
  return std::string(message.substr(0, end)) + " …";
}

Result<Json> parse_row(std::string_view line) {
  if (line.size() > kMaxLineBytes) {
    return fail(Code::kInvalidArgument,
                "a line of {} bytes (at most {}); is this a jsonl file, one row a line?", line.size(),
                kMaxLineBytes);
  }
  if (line.find('\0') != std::string_view::npos) {
    return fail(Code::kDataLoss, "NUL bytes; the file is cut short, binary or UTF-16: it must be UTF-8 text");
  }
  if (max_nesting(line) > kMaxNesting) {
    return fail(Code::kInvalidArgument, "JSON nested deeper than {} levels", kMaxNesting);
  }
  try {
    Json row = Json::parse(line);
    if (!row.is_object()) {
      return fail(Code::kInvalidArgument, "a JSON {} where a row, an object in {{}}, is expected",
                  row.type_name());
    }
    return row;
  } catch (const Json::exception& error) {
    return fail(Code::kInvalidArgument, "not JSON: {}", parse_reason(error.what()));
  }
}

}  // namespace

Result<std::int64_t> for_each_json_line(std::string_view bytes, const std::string& name,
                                        const JsonRowBody& body) {
  if (bytes.starts_with(kByteOrderMark)) bytes.remove_prefix(kByteOrderMark.size());
  std::int64_t num_rows = 0;
  for (std::int64_t number = 1; !bytes.empty(); ++number) {
    const std::size_t end = std::min(bytes.find('\n'), bytes.size());
    const std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    if (is_blank(line)) continue;
    RONDO_ASSIGN_CTX(const Json row, parse_row(line), fmt::format("{}:{}", name, number));
    if (auto done = body(row, number); !done) {
      return tl::unexpected<Status>(std::move(done).error().with_context(fmt::format("{}:{}", name, number)));
    }
    ++num_rows;
  }
  return num_rows;
}

std::string to_json_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace rondo::data
