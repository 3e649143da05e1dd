// Reads TOML into a flat list of full keys and values. The only user of the TOML library.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "config/value.h"

namespace rondo::config {

/// One `key = value` of a TOML document, or one empty section.
struct Entry {
  std::string key;  // full key; a part that is no bare key stands in quotes
  Value value;      // Opaque for an empty section
  int line = 0;     // 1-based
  bool is_section = false;
};

/// The entries of a document in the order of its lines. `source` names it in messages. kInvalidArgument with
/// "source:line" for what is not TOML; documents over 1 MiB, with over 10000 points or nested
/// over 64 deep are refused.
Result<std::vector<Entry>> parse_toml(std::string_view text, std::string_view source);

/// The value of one TOML literal on one line; nullopt if it is none.
std::optional<Value> parse_toml_literal(std::string_view text);

}  // namespace rondo::config
