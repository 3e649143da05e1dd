// Prints a config: as TOML that loads back to the same values, as TOML with docs, as a reference page.
#pragma once

#include <string>
#include <string_view>

#include "config/field_list.h"

namespace rondo::config {

/// Every field with its value, section by section. Loading the text gives the same values, bit for bit;
/// precondition: strings are UTF-8 and numbers finite (which loading guarantees).
std::string to_toml(const FieldList& fields);

/// The same with each field's doc, type, range and default as a comment above it. `defaults` lists the fields
/// of a default-constructed config of the same type.
std::string to_annotated_toml(const FieldList& fields, const FieldList& defaults);

/// The reference page: a table of key, type, default and doc for each section.
std::string to_markdown(const FieldList& defaults, std::string_view title);

/// Of any config, const or not.
template <class C>
std::string to_toml_of(C config) {
  return to_toml(FieldList(config));
}
template <class C>
std::string to_annotated_toml_of(C config) {
  C defaults;
  return to_annotated_toml(FieldList(config), FieldList(defaults));
}

}  // namespace rondo::config
