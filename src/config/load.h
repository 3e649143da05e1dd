// Reads TOML files and `section.key=value` overrides into a config struct.
//
//   Config config;
//   config::FieldList fields(config);
//   RONDO_TRY(config::load_file(fields, path));
//   RONDO_TRY(config::apply_overrides(fields, arguments));
//   RONDO_TRY(fields.validate());
//
// Messages name the place (file:line, or the override) and the full key; an unknown key comes with the
// nearest valid one, a value that does not fit with the expected type and range. After an error the config is
// unchanged. Ranges of single fields are checked here, the structs' own validate() is not called.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "config/field_list.h"

namespace rondo::config {

/// Sets the fields that a TOML document names; `source` names it in messages.
Result<void> load_text(const FieldList& fields, std::string_view text, std::string_view source);

/// An entry of a document that no field takes, and why, with its line.
struct LeftOut {
  std::string key;
  std::string reason;
};

/// Sets the fields that a document of another version names as far as it can, and returns what it had to
/// leave out. An error, which sets none, is a text that is not TOML.
Result<std::vector<LeftOut>> load_known_text(const FieldList& fields, std::string_view text,
                                             std::string_view source);

/// load_text() for a file.
Result<void> load_file(const FieldList& fields, const std::filesystem::path& path);

/// Sets fields from `section.key=value`, in order: the last one of a key counts.
///
/// The value is read as the field's type. Text may stand without quotes; in quotes it is a TOML string. Lists
/// are `[a,b]` or `a,b`. Booleans may also be written True and False.
Result<void> apply_overrides(const FieldList& fields, std::span<const std::string> overrides);

}  // namespace rondo::config
