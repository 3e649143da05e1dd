#include "sim/trace.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "data/json_lines.h"

namespace rondo::sim {
namespace {

using nlohmann::json;

// Fields by the names that rondo, verl and slime give them.
constexpr std::initializer_list<const char*> kPromptIds = {"prompt_id", "ordinal", "group_index", "uid",
                                                           "prompt_index"};
constexpr std::initializer_list<const char*> kPromptTexts = {"input", "prompt"};
constexpr std::initializer_list<const char*> kLengths = {"length", "response_length"};
constexpr std::initializer_list<const char*> kResponseTexts = {"output", "response"};
constexpr std::int64_t kLongest = std::int64_t{1} << 24;
constexpr std::int64_t kMostSamples = std::int64_t{1} << 24;

struct Row {
  std::string prompt;
  std::optional<std::int64_t> sample;
  std::int64_t length = 0;
  std::int64_t prompt_tokens = 0;  // 0: the row does not say
  std::vector<Token> tokens;       // of the response
};

struct Group {
  std::int64_t first_line = 0;
  std::int64_t prompt_tokens = 0;  // 0: no row says
  std::map<std::int64_t, Row> samples;
};

const json* find_any(const json& row, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto it = row.find(name);
    if (it != row.end() && !it->is_null()) return &*it;
  }
  return nullptr;
}

const json* find_array(const json& row, std::initializer_list<const char*> names) {
  const json* found = find_any(row, names);
  return found != nullptr && found->is_array() ? found : nullptr;
}

std::string excerpt(const json& value) {
  return data::to_json_text(value).substr(0, 40);
}

Result<std::vector<Token>> tokens_of(const json& list, std::string_view field) {
  std::vector<Token> tokens;
  tokens.reserve(list.size());
  for (const json& value : list) {
    const bool is_token =
        value.is_number_integer() && value >= 0 && value <= std::numeric_limits<Token>::max();
    if (!is_token) {
      return fail(Code::kInvalidArgument, "{} holds {}, which is no token id; leave the field out", field,
                  excerpt(value));
    }
    tokens.push_back(value.get<Token>());
  }
  return tokens;
}

Result<std::int64_t> count_of(const json& value, std::string_view field) {
  if (!value.is_number_integer() || value < 1 || value > kLongest) {
    return fail(Code::kInvalidArgument, "{} is {}; it must be an integer from 1 to {}", field, excerpt(value),
                kLongest);
  }
  return value.get<std::int64_t>();
}

// Takes a count that is known in another way too, by `what`. A count of 0 says nothing.
Result<void> agree(std::int64_t count, std::string_view what, std::int64_t& known) {
  if (count > kLongest) {
    return fail(Code::kInvalidArgument, "{} has {} tokens; at most {} are possible", what, count, kLongest);
  }
  if (count > 0 && known > 0 && count != known) {
    return fail(Code::kInvalidArgument, "{} has {} tokens, but the row gives its length as {}", what, count,
                known);
  }
  if (count > 0) known = count;
  return {};
}

// At least 1: a response of a few characters is one token.
Result<std::int64_t> tokens_of_text(const json& text, double chars_per_token, std::string_view what) {
  const auto chars = static_cast<double>(text.get_ref<const std::string&>().size());
  const double tokens = chars / chars_per_token;
  if (tokens > static_cast<double>(kLongest)) {
    return fail(Code::kInvalidArgument,
                "{} of {} characters is more than {} tokens; raise trace.chars_per_token", what, chars,
                kLongest);
  }
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(tokens));
}

// slime: prompt and response in one list, of which the last `length` are the response.
Result<void> read_joined_tokens(const json& all, Row& result) {
  if (std::ssize(all) < result.length) {
    return fail(Code::kInvalidArgument, "tokens has {} tokens, but the response alone {}", all.size(),
                result.length);
  }
  RONDO_TRY(agree(std::ssize(all) - result.length, "the prompt in tokens", result.prompt_tokens));
  RONDO_ASSIGN(result.tokens, tokens_of(all, "tokens"));
  result.tokens.erase(result.tokens.begin(), result.tokens.end() - result.length);
  return {};
}

Result<void> read_length(const json& row, const TraceConfig& config, Row& result) {
  for (const char* name : kLengths) {
    const json* length = find_any(row, {name});
    if (length == nullptr) continue;
    RONDO_ASSIGN(const std::int64_t count, count_of(*length, name));
    RONDO_TRY(agree(count, name, result.length));
  }
  if (const json* tokens = find_array(row, {"response_tokens"})) {
    RONDO_ASSIGN(result.tokens, tokens_of(*tokens, "response_tokens"));
    RONDO_TRY(agree(std::ssize(*tokens), "response_tokens", result.length));
  }
  const json* all = find_array(row, {"tokens"});
  if (all != nullptr && result.length > 0 && result.tokens.empty())
    RONDO_TRY(read_joined_tokens(*all, result));
  const json* text = find_any(row, kResponseTexts);
  if (result.length == 0 && text != nullptr && text->is_string() && config.chars_per_token > 0.0) {
    RONDO_ASSIGN(result.length, tokens_of_text(*text, config.chars_per_token, "the response"));
  }
  if (result.length >= 1) return {};
  return fail(
      Code::kInvalidArgument,
      "the row has no length of at least 1: give 'length', 'response_length' or 'response_tokens', or "
      "set trace.chars_per_token for texts alone");
}

Result<void> read_prompt(const json& row, const TraceConfig& config, Row& result) {
  const json* text = find_any(row, kPromptTexts);
  const json* id = find_any(row, kPromptIds);
  if (id == nullptr) id = text;
  if (id == nullptr) {
    return fail(Code::kInvalidArgument,
                "the row names no prompt: give 'prompt_id', 'ordinal', 'group_index', 'uid' or 'input'");
  }
  result.prompt = data::to_json_text(*id);
  if (const json* length = find_any(row, {"prompt_length"})) {
    RONDO_ASSIGN(result.prompt_tokens, count_of(*length, "prompt_length"));
  }
  if (const json* tokens = find_array(row, {"prompt_tokens"})) {
    RONDO_TRY(agree(std::ssize(*tokens), "prompt_tokens", result.prompt_tokens));
  }
  if (result.prompt_tokens == 0 && text != nullptr && text->is_string() && config.chars_per_token > 0.0) {
    RONDO_ASSIGN(result.prompt_tokens, tokens_of_text(*text, config.chars_per_token, "the prompt"));
  }
  return {};
}

Result<Row> parse_row(const json& row, const TraceConfig& config) {
  Row result;
  RONDO_TRY(read_prompt(row, config, result));
  if (const auto sample = row.find("sample"); sample != row.end()) {
    if (!sample->is_number_integer() || *sample < 0 || *sample > kMostSamples) {
      return fail(Code::kInvalidArgument, "sample is {}; it must be an integer from 0 on", excerpt(*sample));
    }
    result.sample = sample->get<std::int64_t>();
  }
  RONDO_TRY(read_length(row, config, result));
  if (config.max_new_tokens > 0 && result.length > config.max_new_tokens) {
    return fail(Code::kInvalidArgument, "a length of {} is beyond trace.max_new_tokens = {}; set it to 0",
                result.length, config.max_new_tokens);
  }
  return result;
}

/// The rows read so far, by prompt.
class Rows final {
 public:
  Result<void> add(Row row, std::int64_t line) {
    const auto [it, is_new] = by_prompt_.emplace(row.prompt, groups_.size());
    if (is_new) groups_.push_back({.first_line = line, .samples = {}});
    Group& group = groups_[it->second];
    if (row.prompt_tokens > 0 && group.prompt_tokens > 0 && row.prompt_tokens != group.prompt_tokens) {
      return fail(Code::kInvalidArgument,
                  "prompt {} has {} tokens here and {} in a row before, from line {} on",
                  row.prompt.substr(0, 40), row.prompt_tokens, group.prompt_tokens, group.first_line);
    }
    if (row.prompt_tokens > 0) group.prompt_tokens = row.prompt_tokens;
    const std::int64_t sample = row.sample.value_or(std::ssize(group.samples));
    if (group.samples.contains(sample)) {
      return fail(Code::kInvalidArgument, "sample {} of prompt {} is there twice", sample,
                  row.prompt.substr(0, 40));
    }
    group.samples.emplace(sample, std::move(row));
    return {};
  }
  std::vector<Group>& groups() { return groups_; }

 private:
  std::vector<Group> groups_;
  std::map<std::string, std::size_t> by_prompt_;
};

// Every prompt has the samples 0 … size - 1.
Result<void> check_samples(const std::vector<Group>& groups, const std::string& name) {
  std::int64_t size = 0;
  for (const Group& group : groups) size = std::max(size, std::ssize(group.samples));
  for (const Group& group : groups) {
    std::int64_t expected = 0;
    for (const auto& [index, row] : group.samples) {
      if (index != expected) break;
      ++expected;
    }
    if (expected == size) continue;
    return fail(
        Code::kInvalidArgument,
        "{}: prompt {}, first at line {}, has {} of {} samples; sample {} is missing: add it, or leave "
        "the prompt out",
        name, group.samples.begin()->second.prompt.substr(0, 40), group.first_line, group.samples.size(),
        size, expected);
  }
  return {};
}

Trace to_trace(std::vector<Group>& groups, const TraceConfig& config) {
  constexpr std::int64_t kPromptTokens = 300;  // where the file does not say
  std::int64_t longest = config.max_new_tokens;
  for (const Group& group : groups) {
    for (const auto& [index, row] : group.samples) longest = std::max(longest, row.length);
  }
  Trace trace;
  bool has_tokens = true;
  std::int64_t next_id = 0;
  for (Group& group : groups) {
    const std::int64_t prompt = group.prompt_tokens;
    rollout::GroupSpec spec{.id = GroupId(std::ssize(trace.groups)),
                            .prompt_tokens = static_cast<std::int32_t>(prompt > 0 ? prompt : kPromptTokens),
                            .samples = {}};
    for (auto& [index, row] : group.samples) {
      spec.samples.push_back({.id = RequestId(next_id++),
                              .max_new_tokens = static_cast<std::int32_t>(longest),
                              .true_tokens = static_cast<std::int32_t>(row.length)});
      has_tokens = has_tokens && std::ssize(row.tokens) == row.length;
      trace.tokens.push_back(std::move(row.tokens));
    }
    trace.groups.push_back(std::move(spec));
  }
  if (!has_tokens) trace.tokens.clear();
  return trace;
}

}  // namespace

Result<Trace> parse_trace(const TraceConfig& config, std::string_view text, const std::string& name) {
  Rows rows;
  RONDO_TRY(data::for_each_json_line(text, name, [&](const json& line, std::int64_t number) -> Result<void> {
    RONDO_ASSIGN(Row row, parse_row(line, config));
    return rows.add(std::move(row), number);
  }));
  if (rows.groups().empty()) return fail(Code::kInvalidArgument, "{}: the trace has no rows", name);
  RONDO_TRY(check_samples(rows.groups(), name));
  return to_trace(rows.groups(), config);
}

Result<Trace> read_trace(const TraceConfig& config) {
  RONDO_ASSIGN_CTX(const std::string text, read_file(config.file), "trace.file");
  return parse_trace(config, text, config.file);
}

}  // namespace rondo::sim
