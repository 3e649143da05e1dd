#include "data/rollout_dump.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "data/json_lines.h"

namespace rondo::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view kPrefix = "step_";
constexpr std::string_view kSuffix = ".jsonl";
constexpr std::string_view kUnfinished = ".tmp";

fs::path unfinished_path(fs::path path) {
  return path += kUnfinished;
}

// The N of "step_<N>.jsonl"; nullopt for any other name.
std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || name.front() == '-') return std::nullopt;
  return step;
}

// --- writing: keys in the order of the header's grammar
// -----------------------------------------------------

// fp32 with 9 digits, fp64 with 17; always with a point, an exponent or quotes, so that -0 keeps its sign.
template <class T>
void append_number(std::string& out, T value) {
  if (!std::isfinite(value)) {
    out += std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
    return;
  }
  const std::size_t begin = out.size();
  fmt::format_to(std::back_inserter(out), "{:.{}g}", value, std::numeric_limits<T>::max_digits10);
  if (out.find_first_of(".e", begin) == std::string::npos) out += ".0";
}

void append_key(std::string& out, std::string_view key) {
  out += out.empty() ? "{\"" : ", \"";
  out.append(key).append("\": ");
}

void append_integer(std::string& out, std::string_view key, std::int64_t value) {
  append_key(out, key);
  fmt::format_to(std::back_inserter(out), "{}", value);
}

void append_text(std::string& out, std::string_view key, const std::string& value) {
  append_key(out, key);
  out += to_json_text(Json(value));
}

template <class T, class F>
void append_list(std::string& out, std::string_view key, const std::vector<T>& values, F append_one) {
  append_key(out, key);
  out += '[';
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ", ";
    append_one(values[i]);
  }
  out += ']';
}

std::string to_line(const RolloutRow& row) {
  std::string out;
  append_integer(out, "step", row.step);
  append_integer(out, "prompt_index", row.prompt_index);
  append_integer(out, "ordinal", row.ordinal);
  append_integer(out, "sample", row.sample);
  append_integer(out, "policy_version", row.policy_version.value());
  append_text(out, "data_source", row.data_source);
  append_text(out, "input", row.prompt_text);
  append_text(out, "output", row.response_text);
  append_text(out, "gts", row.ground_truth);
  append_key(out, "score");
  append_number(out, row.score);
  append_key(out, "advantage");
  append_number(out, row.advantage);
  append_text(out, "finish_reason", row.finish_reason);
  const auto token = [&](Token id) { fmt::format_to(std::back_inserter(out), "{}", id); };
  append_list(out, "prompt_tokens", row.prompt_tokens, token);
  append_list(out, "response_tokens", row.response_tokens, token);
  append_list(out, "log_probs", row.log_probs, [&](float value) { append_number(out, value); });
  out += "}\n";
  return out;
}

// --- reading
// ------------------------------------------------------------------------------------------------

bool from_json(const Json& json, std::string& out) {
  if (!json.is_string()) return false;
  out = json.get<std::string>();
  return true;
}

template <class T>
requires std::is_integral_v<T>
bool from_json(const Json& json, T& out) {
  if (!json.is_number_integer()) return false;
  if (json.is_number_unsigned() && !std::in_range<T>(json.get<std::uint64_t>())) return false;
  if (!json.is_number_unsigned() && !std::in_range<T>(json.get<std::int64_t>())) return false;
  out = json.get<T>();
  return true;
}

// The decimals have so many digits that rounding them to double first gives the same float.
template <class T>
requires std::is_floating_point_v<T>
bool from_json(const Json& json, T& out) {
  if (json.is_string()) {
    const auto& text = json.get_ref<const std::string&>();
    if (text == "NaN") out = std::numeric_limits<T>::quiet_NaN();
    if (text == "Infinity") out = std::numeric_limits<T>::infinity();
    if (text == "-Infinity") out = -std::numeric_limits<T>::infinity();
    return text == "NaN" || text == "Infinity" || text == "-Infinity";
  }
  if (!json.is_number()) return false;
  out = static_cast<T>(json.get<double>());
  return std::isfinite(out);
}

template <class T>
bool from_json(const Json& json, std::vector<T>& out) {
  if (!json.is_array()) return false;
  out.resize(json.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!from_json(json[i], out[i])) return false;
  }
  return true;
}

template <class T>
Result<void> read_field(const Json& row, const char* key, T& out) {
  const auto it = row.find(key);
  if (it == row.end()) return fail(Code::kDataLoss, "no \"{}\": this is not a row of a rollout dump", key);
  if (!from_json(*it, out))
    return fail(Code::kDataLoss, "\"{}\" has a value of the wrong type or range", key);
  return {};
}

Result<RolloutRow> parse_row(const Json& json) {
  RolloutRow row;
  std::int64_t version = 0;
  RONDO_TRY(read_field(json, "step", row.step));
  RONDO_TRY(read_field(json, "prompt_index", row.prompt_index));
  RONDO_TRY(read_field(json, "ordinal", row.ordinal));
  RONDO_TRY(read_field(json, "sample", row.sample));
  RONDO_TRY(read_field(json, "policy_version", version));
  RONDO_TRY(read_field(json, "data_source", row.data_source));
  RONDO_TRY(read_field(json, "input", row.prompt_text));
  RONDO_TRY(read_field(json, "output", row.response_text));
  RONDO_TRY(read_field(json, "gts", row.ground_truth));
  RONDO_TRY(read_field(json, "score", row.score));
  RONDO_TRY(read_field(json, "advantage", row.advantage));
  RONDO_TRY(read_field(json, "finish_reason", row.finish_reason));
  RONDO_TRY(read_field(json, "prompt_tokens", row.prompt_tokens));
  RONDO_TRY(read_field(json, "response_tokens", row.response_tokens));
  RONDO_TRY(read_field(json, "log_probs", row.log_probs));
  row.policy_version = PolicyVersion(version);
  if (row.log_probs.size() != row.response_tokens.size()) {
    return fail(Code::kDataLoss, "{} log_probs for {} response_tokens", row.log_probs.size(),
                row.response_tokens.size());
  }
  return row;
}

}  // namespace

fs::path rollout_path(const fs::path& folder, std::int64_t step) {
  RONDO_CHECK_GE(step, 0);
  return folder / fmt::format("{}{}{}", kPrefix, step, kSuffix);
}

Result<RolloutWriter> RolloutWriter::create(const fs::path& folder, std::int64_t step) {
  const fs::path path = rollout_path(folder, step);
  RONDO_ASSIGN(FileWriter file, FileWriter::create(unfinished_path(path)));
  return RolloutWriter(std::move(file), path, step);
}

RolloutWriter::RolloutWriter(RolloutWriter&& other) noexcept
    : file_(std::exchange(other.file_, std::nullopt)), path_(std::move(other.path_)), step_(other.step_) {}

RolloutWriter::~RolloutWriter() {
  if (!file_) return;
  std::error_code ignored;  // nothing depends on the leftover
  fs::remove(unfinished_path(path_), ignored);
}

Result<void> RolloutWriter::append(const RolloutRow& row) {
  RONDO_CHECK(file_.has_value());
  RONDO_CHECK_EQ(row.step, step_);
  RONDO_CHECK_EQ(row.log_probs.size(), row.response_tokens.size());
  return file_->append(std::as_bytes(std::span<const char>(to_line(row))));
}

Result<void> RolloutWriter::finish() {
  RONDO_CHECK(file_.has_value());
  RONDO_TRY(file_->finish());
  std::error_code error;
  fs::rename(unfinished_path(path_), path_, error);
  if (error) return fail(Code::kIo, "cannot rename a file to {}: {}", path_.string(), error.message());
  file_.reset();
  return fsync_folder(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
}

Result<std::vector<RolloutRow>> parse_rollouts(std::string_view bytes, const std::string& name) {
  std::vector<RolloutRow> rows;
  RONDO_TRY(for_each_json_line(bytes, name, [&](const Json& json, std::int64_t) -> Result<void> {
    RONDO_ASSIGN(RolloutRow row, parse_row(json));
    rows.push_back(std::move(row));
    return {};
  }));
  return rows;
}

Result<std::vector<RolloutRow>> read_rollouts(const fs::path& path) {
  RONDO_ASSIGN(const auto mapped, MappedFile::open(path));
  const auto bytes = mapped->bytes();
  return parse_rollouts({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

Result<std::int64_t> remove_rollouts_from(const fs::path& folder, std::int64_t first_step) {
  std::int64_t num_removed = 0;
  std::error_code error;
  if (!fs::exists(folder, error) && !error) return num_removed;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const bool unfinished = name.ends_with(kUnfinished);
    const auto step =
        step_of(std::string_view(name).substr(0, name.size() - (unfinished ? kUnfinished.size() : 0)));
    if (!step || (!unfinished && *step < first_step)) continue;
    fs::remove(it->path(), error);
    if (error) break;
    if (!unfinished) ++num_removed;
  }
  if (error) return fail(Code::kIo, "cannot clear {}: {}", folder.string(), error.message());
  RONDO_TRY(fsync_folder(folder));
  return num_removed;
}

}  // namespace rondo::data
