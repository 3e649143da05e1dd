#include "data/response_lengths.h"

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "data/json_lines.h"

namespace rondo::data {
namespace {

using Json = nlohmann::json;

struct Prompt {
  std::string id;
  std::map<std::int64_t, std::int32_t> lengths;  // by sample
};

Result<std::string> prompt_of(const Json& row) {
  for (const char* key : {"prompt_id", "ordinal"}) {
    if (const auto id = row.find(key); id != row.end() && !id->is_null()) return to_json_text(*id);
  }
  return fail(Code::kInvalidArgument,
              "no \"prompt_id\"; a row is {{\"prompt_id\": …, \"sample\": 0, \"length\": 123}}, or one of a "
              "rollout dump");
}

Result<std::int64_t> integer(const Json& row, const char* key, std::int64_t least) {
  const auto value = row.find(key);
  const bool fits = value != row.end() && value->is_number_integer() && *value >= least &&
                    *value <= std::numeric_limits<std::int32_t>::max();
  if (!fits) return fail(Code::kInvalidArgument, "\"{}\" is no integer of at least {}", key, least);
  return value->get<std::int64_t>();
}

Result<std::int32_t> length_of(const Json& row) {
  const auto tokens = row.find("response_tokens");
  if (row.contains("length") || tokens == row.end() || !tokens->is_array() || tokens->empty()) {
    RONDO_ASSIGN(const std::int64_t length, integer(row, "length", 1));
    return static_cast<std::int32_t>(length);
  }
  return static_cast<std::int32_t>(tokens->size());
}

// The lengths in order of the samples, of which none may be missing.
Result<std::vector<std::int32_t>> in_order(const Prompt& prompt) {
  std::vector<std::int32_t> lengths;
  for (const auto& [sample, length] : prompt.lengths) {
    if (sample != std::ssize(lengths))
      return fail(Code::kInvalidArgument, "prompt {} has {} samples, but no sample {}", prompt.id,
                  prompt.lengths.size(), lengths.size());
    lengths.push_back(length);
  }
  return lengths;
}

}  // namespace

Result<ResponseLengths> parse_response_lengths(std::string_view bytes, const std::string& name) {
  std::vector<Prompt> prompts;
  std::map<std::string, std::size_t> places;
  const auto add = [&](const Json& row) -> Result<void> {
    RONDO_ASSIGN(const std::string id, prompt_of(row));
    RONDO_ASSIGN(const std::int64_t sample, integer(row, "sample", 0));
    RONDO_ASSIGN(const std::int32_t length, length_of(row));
    const auto [place, is_new] = places.emplace(id, prompts.size());
    if (is_new) prompts.push_back({id, {}});
    if (!prompts[place->second].lengths.emplace(sample, length).second)
      return fail(Code::kInvalidArgument, "sample {} of prompt {} is there twice", sample, id);
    return {};
  };
  RONDO_TRY(for_each_json_line(bytes, name, add));
  if (prompts.empty()) return fail(Code::kInvalidArgument, "{} has no rows", name);
  ResponseLengths lengths;
  for (const Prompt& prompt : prompts) {
    RONDO_ASSIGN_CTX(std::vector<std::int32_t> of_prompt, in_order(prompt), name);
    lengths.push_back(std::move(of_prompt));
  }
  return lengths;
}

Result<ResponseLengths> read_response_lengths(const std::filesystem::path& path) {
  RONDO_ASSIGN(const std::string bytes, read_file(path));
  return parse_response_lengths(bytes, path.string());
}

}  // namespace rondo::data
