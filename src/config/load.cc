#include "config/load.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/file.h"
#include "base/text_distance.h"
#include "config/toml_reader.h"

namespace rondo::config {
namespace {

// A value that has passed its field's check, not yet stored.
struct Assignment {
  const Field* field;
  Value value;
};

void commit(const std::vector<Assignment>& assignments) {
  for (const Assignment& assignment : assignments) assignment.field->assign(assignment.value);
}

std::string_view last_part(std::string_view key) {
  const std::size_t point = key.rfind('.');
  return point == std::string_view::npos ? key : key.substr(point + 1);
}

// The key the user most likely meant: a near miss, else the same name in another section, else the nearest.
std::string suggestion(std::string_view key, const std::vector<std::string>& keys) {
  constexpr int kNearMiss = 2;
  constexpr std::size_t kLongestKey = 100;  // a longer one is no typing error, and the distance is quadratic
  key = key.substr(0, kLongestKey);
  std::string nearest = nearest_name(key, keys);
  if (edit_distance(key, nearest) <= kNearMiss) return nearest;
  std::vector<std::string> namesakes;
  std::copy_if(keys.begin(), keys.end(), std::back_inserter(namesakes),
               [&](const std::string& candidate) { return last_part(candidate) == last_part(key); });
  return namesakes.empty() ? nearest : nearest_name(key, namesakes);
}

const FieldList::Section* find_section(const FieldList& fields, std::string_view key) {
  for (const FieldList::Section& section : fields.sections())
    if (section.key == key) return &section;
  return nullptr;
}

// The field that `key` treats as a section ("seed.x" where "seed" is a number), or nullptr.
const Field* field_above(const FieldList& fields, std::string_view key) {
  for (std::size_t point = key.find('.'); point != std::string_view::npos; point = key.find('.', point + 1))
    if (const Field* field = fields.find(key.substr(0, point))) return field;
  return nullptr;
}

// The error for a key that is no field.
tl::unexpected<Status> unknown_key(const FieldList& fields, std::string_view key) {
  if (!key.empty() && find_section(fields, key) != nullptr) {
    const std::vector<std::string> keys = fields.keys();
    const std::string prefix = std::string(key) + ".";
    const auto inner = std::find_if(keys.begin(), keys.end(),
                                    [&](const std::string& full) { return full.starts_with(prefix); });
    return fail(Code::kInvalidArgument, "'{}' is a section, not a field{}", key,
                inner == keys.end() ? "" : fmt::format("; set its fields, e.g. '{}'", *inner));
  }
  if (const Field* field = field_above(fields, key))
    return fail(Code::kInvalidArgument, "unknown key '{}': '{}' is a field ({}), not a section", key,
                field->key(), field->type_name());
  return fail(Code::kInvalidArgument, "unknown key '{}'; did you mean '{}'?", key,
              suggestion(key, fields.keys()));
}

// The error for a section that does not exist, or nothing.
Result<void> check_section(const FieldList& fields, std::string_view key) {
  if (find_section(fields, key) != nullptr) return {};
  if (const Field* field = fields.find(key)) return field->check(Opaque{"a section"});
  std::vector<std::string> sections;
  for (const FieldList::Section& section : fields.sections())
    if (!section.key.empty()) sections.push_back(section.key);
  if (sections.empty()) return fail(Code::kInvalidArgument, "unknown section '{}'; there are none", key);
  return fail(Code::kInvalidArgument, "unknown section '{}'; did you mean '{}'?", key,
              suggestion(key, sections));
}

Result<const Field*> find_field(const FieldList& fields, std::string_view key) {
  const Field* field = fields.find(key);
  if (field == nullptr) return unknown_key(fields, key);
  return field;
}

// What an entry assigns; nothing for an empty section.
Result<std::optional<Assignment>> read_entry(const FieldList& fields, Entry entry) {
  if (entry.is_section) {
    RONDO_TRY(check_section(fields, entry.key));
    return std::nullopt;
  }
  RONDO_ASSIGN(const Field* field, find_field(fields, entry.key));
  RONDO_TRY(field->check(entry.value));
  return Assignment{field, std::move(entry.value)};
}

Result<void> check_entry(const FieldList& fields, Entry entry, std::string_view source,
                         std::vector<Assignment>& out) {
  const std::string place = fmt::format("{}:{}", source, entry.line);
  RONDO_ASSIGN_CTX(std::optional<Assignment> assignment, read_entry(fields, std::move(entry)), place);
  if (assignment) out.push_back(*std::move(assignment));
  return {};
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool has_quotes(std::string_view text) {
  return text.find_first_of("\"'") != std::string_view::npos;
}

// Unquoted text, or nullopt if it is not UTF-8.
std::optional<Value> bare_text(std::string_view text) {
  return parse_toml_literal(literal(std::string(text)));
}

std::optional<Value> read_text(std::string_view text) {
  const bool quoted = text.starts_with('"') || text.starts_with('\'');
  return quoted ? parse_toml_literal(text) : bare_text(text);
}

// `[a,b]` or `a,b`: as TOML where the elements are numbers or quoted, else cut at the commas.
std::optional<Value> read_list(std::string_view text, bool of_text) {
  const bool bracketed = text.starts_with('[') && text.ends_with(']') && text.size() >= 2;
  const std::string_view body = trimmed(bracketed ? text.substr(1, text.size() - 2) : text);
  if (body.empty()) return std::vector<std::string>();
  if (!of_text || has_quotes(body)) return parse_toml_literal(fmt::format("[{}]", body));
  std::vector<std::string> elements;
  for (std::size_t begin = 0; begin <= body.size();) {
    const std::size_t end = std::min(body.find(',', begin), body.size());
    const auto element = bare_text(trimmed(body.substr(begin, end - begin)));
    if (!element) return std::nullopt;
    elements.push_back(std::get<std::string>(*element));
    begin = end + 1;
  }
  return elements;
}

// Numbers and booleans: TOML, and the spellings of them that only Python has ("True", ".5", "1.").
std::optional<Value> read_scalar(std::string_view text, Shape shape) {
  if (shape == Shape::kBoolean && text == "True") return true;
  if (shape == Shape::kBoolean && text == "False") return false;
  const bool has_comment = text.find('#') != std::string_view::npos;
  if (auto value = parse_toml_literal(text); value && !has_comment) return value;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (shape == Shape::kNumber && error == std::errc() && end == text.data() + text.size()) return number;
  return bare_text(text);
}

std::optional<Value> read_override_value(std::string_view text, Shape shape) {
  switch (shape) {
    case Shape::kText:
      return read_text(text);
    case Shape::kTextList:
    case Shape::kNumberList:
      return read_list(trimmed(text), shape == Shape::kTextList);
    case Shape::kBoolean:
    case Shape::kInteger:
    case Shape::kNumber:
      return read_scalar(trimmed(text), shape);
  }
  return std::nullopt;
}

Result<Assignment> read_override(const FieldList& fields, std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos)
    return fail(Code::kInvalidArgument, "an override is written section.key=value");
  RONDO_ASSIGN(const Field* field, find_field(fields, trimmed(text.substr(0, equals))));
  auto value = read_override_value(text.substr(equals + 1), field->shape());
  if (!value)
    return fail(Code::kInvalidArgument,
                "{}: the value cannot be read as {}; check its quotes and its encoding", field->key(),
                field->type_name());
  RONDO_TRY(field->check(*value));
  return Assignment{field, *std::move(value)};
}

}  // namespace

Result<void> load_text(const FieldList& fields, std::string_view text, std::string_view source) {
  RONDO_ASSIGN(std::vector<Entry> entries, parse_toml(text, source));
  std::vector<Assignment> assignments;
  for (Entry& entry : entries) RONDO_TRY(check_entry(fields, std::move(entry), source, assignments));
  commit(assignments);
  return {};
}

Result<std::vector<LeftOut>> load_known_text(const FieldList& fields, std::string_view text,
                                             std::string_view source) {
  RONDO_ASSIGN(std::vector<Entry> entries, parse_toml(text, source));
  std::vector<Assignment> assignments;
  std::vector<LeftOut> left_out;
  for (Entry& entry : entries) {
    std::string key = entry.key;
    const auto checked = check_entry(fields, std::move(entry), source, assignments);
    if (!checked) left_out.push_back({std::move(key), checked.error().message()});
  }
  commit(assignments);
  return left_out;
}

Result<void> load_file(const FieldList& fields, const std::filesystem::path& path) {
  RONDO_ASSIGN(const std::string text, read_file(path));
  return load_text(fields, text, path.string());
}

Result<void> apply_overrides(const FieldList& fields, std::span<const std::string> overrides) {
  std::vector<Assignment> assignments;
  for (const std::string& text : overrides) {
    auto assignment = read_override(fields, text);
    if (!assignment)
      return tl::unexpected<Status>(
          std::move(assignment).error().with_context(fmt::format("override '{}'", text)));
    assignments.push_back(*std::move(assignment));
  }
  commit(assignments);
  return {};
}

}  // namespace rondo::config
