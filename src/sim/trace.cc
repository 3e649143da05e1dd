#include "sim/trace.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/file.h"

namespace rondo::sim {
namespace {

using nlohmann::json;

// Fields by the names that rondo, verl and slime give them.
constexpr std::initializer_list<const char*> kPromptIds = {"prompt_id", "ordinal", "group_index", "uid",
                                                           "prompt_index"};
constexpr std::initializer_list<const char*> kPromptTexts = {"input", "prompt"};
constexpr std::initializer_list<const char*> kLengths = {"length", "response_length"};
constexpr std::initializer_list<const char*> kResponseTokens = {"response_tokens"};
constexpr std::initializer_list<const char*> kResponseTexts = {"output", "response"};
constexpr std::int64_t kLongest = std::int64_t{1} << 24;

struct Row {
  std::string prompt;
  std::optional<std::int64_t> sample;
  std::int64_t length = 0;
  std::int64_t prompt_tokens = 0;
  std::vector<Token> tokens;
};

struct Group {
  int first_line = 0;
  std::map<std::int64_t, Row> samples;
};

const json* find_any(const json& row, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto it = row.find(name);
    if (it != row.end() && !it->is_null()) return &*it;
  }
  return nullptr;
}

std::vector<Token> tokens_of(const json& list) {
  std::vector<Token> tokens;
  for (const json& value : list) {
    if (!value.is_number_integer() || value.get<std::int64_t>() < 0 ||
        value.get<std::int64_t>() > std::numeric_limits<Token>::max()) {
      return {};
    }
    tokens.push_back(value.get<Token>());
  }
  return tokens;
}

Result<std::int64_t> count_of(const json& value, std::string_view field) {
  if (!value.is_number_integer() || value.get<std::int64_t>() < 1 || value.get<std::int64_t>() > kLongest) {
    return fail(Code::kInvalidArgument, "{} is {}; it must be an integer from 1 to {}", field,
                value.dump().substr(0, 40), kLongest);
  }
  return value.get<std::int64_t>();
}

Result<void> read_length(const json& row, const TraceConfig& config, Row& result) {
  if (const json* length = find_any(row, kLengths)) {
    RONDO_ASSIGN(result.length, count_of(*length, "the length"));
  }
  if (const json* tokens = find_any(row, kResponseTokens); tokens != nullptr && tokens->is_array()) {
    result.tokens = tokens_of(*tokens);
    if (result.length == 0) result.length = std::ssize(*tokens);
  }
  // slime: prompt and response in one list.
  const auto all = row.find("tokens");
  if (all != row.end() && all->is_array() && result.length > 0 && std::ssize(*all) >= result.length) {
    result.tokens = tokens_of(*all);
    if (result.prompt_tokens == 0) result.prompt_tokens = std::ssize(*all) - result.length;
    const auto keep = std::min(std::ssize(result.tokens), result.length);
    result.tokens.erase(result.tokens.begin(), result.tokens.end() - keep);
  }
  const json* text = find_any(row, kResponseTexts);
  if (result.length == 0 && text != nullptr && text->is_string() && config.chars_per_token > 0.0) {
    const auto chars = static_cast<double>(text->get_ref<const std::string&>().size());
    result.length = std::max<std::int64_t>(1, static_cast<std::int64_t>(chars / config.chars_per_token));
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
  result.prompt = id->dump();
  if (const json* length = find_any(row, {"prompt_length"})) {
    RONDO_ASSIGN(result.prompt_tokens, count_of(*length, "prompt_length"));
  } else if (const json* tokens = find_any(row, {"prompt_tokens"}); tokens != nullptr && tokens->is_array()) {
    result.prompt_tokens = std::ssize(*tokens);
  } else if (text != nullptr && text->is_string() && config.chars_per_token > 0.0) {
    const auto chars = static_cast<double>(text->get_ref<const std::string&>().size());
    result.prompt_tokens = static_cast<std::int64_t>(chars / config.chars_per_token);
  }
  return {};
}

Result<Row> parse_row(std::string_view line, const TraceConfig& config) {
  const json row = json::parse(line, nullptr, false);
  if (!row.is_object()) return fail(Code::kDataLoss, "not a JSON object");
  Row result;
  RONDO_TRY(read_prompt(row, config, result));
  if (const auto sample = row.find("sample"); sample != row.end()) {
    if (!sample->is_number_integer() || sample->get<std::int64_t>() < 0) {
      return fail(Code::kInvalidArgument, "sample is {}; it must be an integer from 0 on",
                  sample->dump().substr(0, 40));
    }
    result.sample = sample->get<std::int64_t>();
  }
  RONDO_TRY(read_length(row, config, result));
  return result;
}

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
    const std::int64_t prompt = group.samples.begin()->second.prompt_tokens;
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
  std::vector<Group> groups;
  std::map<std::string, std::size_t> by_prompt;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = fmt::format("{}:{}", name, number);
    RONDO_ASSIGN_CTX(Row row, parse_row(line, config), place);
    const auto [it, is_new] = by_prompt.emplace(row.prompt, groups.size());
    if (is_new) groups.push_back({.first_line = number, .samples = {}});
    Group& group = groups[it->second];
    const std::int64_t sample = row.sample.value_or(std::ssize(group.samples));
    if (group.samples.contains(sample)) {
      return fail(Code::kInvalidArgument, "{}: sample {} of prompt {} is there twice", place, sample,
                  row.prompt.substr(0, 40));
    }
    if (config.max_new_tokens > 0 && row.length > config.max_new_tokens) {
      return fail(Code::kInvalidArgument,
                  "{}: a length of {} is beyond trace.max_new_tokens = {}; set it to 0", place, row.length,
                  config.max_new_tokens);
    }
    group.samples.emplace(sample, std::move(row));
  }
  if (groups.empty()) return fail(Code::kInvalidArgument, "{}: the trace has no rows", name);
  RONDO_TRY(check_samples(groups, name));
  return to_trace(groups, config);
}

Result<Trace> read_trace(const TraceConfig& config) {
  RONDO_ASSIGN_CTX(const std::string text, read_file(config.file), "trace.file");
  return parse_trace(config, text, config.file);
}

}  // namespace rondo::sim
