#include "config/dump.h"

#include "base/check.h"

namespace rondo::config {
namespace {

std::string_view last_part(std::string_view key) {
  return key.substr(key.rfind('.') + 1);
}

std::string type_and_range(const Field& field) {
  const std::string range = field.range_text();
  return range.empty() ? field.type_name() : field.type_name() + " " + range;
}

std::string section_header(const FieldList::Section& section) {
  return section.key.empty() ? std::string() : fmt::format("[{}]\n", section.key);
}

// Every line of `text` as a comment.
std::string comment(std::string_view text) {
  std::string out = "# ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "# ";
  }
  return out + "\n";
}

std::string assignment(const Field& field) {
  return fmt::format("{} = {}\n", last_part(field.key()), field.current());
}

// Text that may stand in a cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

}  // namespace

std::string to_toml(const FieldList& fields) {
  std::string out;
  for (const FieldList::Section& section : fields.sections()) {
    if (section.fields.empty()) continue;
    if (!out.empty()) out += "\n";
    out += section_header(section);
    for (const Field& field : section.fields) out += assignment(field);
  }
  return out;
}

std::string to_annotated_toml(const FieldList& fields, const FieldList& defaults) {
  std::string out;
  for (const FieldList::Section& section : fields.sections()) {
    if (!out.empty()) out += "\n";
    if (!section.doc.empty()) out += comment(section.doc);
    out += section_header(section);
    for (const Field& field : section.fields) {
      const Field* fallback = defaults.find(field.key());
      RONDO_CHECK(fallback != nullptr);
      out += comment(field.doc());
      out += comment(fmt::format("{}; default {}", type_and_range(field), fallback->current()));
      out += assignment(field);
    }
  }
  return out;
}

std::string to_markdown(const FieldList& defaults, std::string_view title) {
  std::string out = fmt::format("# {}\n", title);
  for (const FieldList::Section& section : defaults.sections()) {
    if (!section.key.empty()) out += fmt::format("\n## `{}`\n", section.key);
    if (!section.doc.empty()) out += fmt::format("\n{}\n", section.doc);
    if (section.fields.empty()) continue;
    out += "\n| Key | Type | Default | Meaning |\n| --- | --- | --- | --- |\n";
    for (const Field& field : section.fields)
      out += fmt::format("| `{}` | {} | `{}` | {} |\n", field.key(), cell(type_and_range(field)),
                         cell(field.current()), cell(field.doc()));
  }
  return out;
}

}  // namespace rondo::config
