// Value: what a TOML file or an override gives, before it meets the type of a field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace rondo::config {

/// A value that no field takes, in words: "a date", "a mixed array". A section is one where a value stands.
struct Opaque {
  std::string description;
};

/// An empty array is a list of strings; list-of-number fields take it too.
using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>,
                           std::vector<double>, Opaque>;

/// TOML literals. Every one reads back as the same value; doubles are the shortest that do.
std::string literal(bool value);
std::string literal(std::int64_t value);
std::string literal(double value);
std::string literal(float value);
std::string literal(const std::string& value);
std::string literal(const std::vector<std::string>& value);
std::string literal(const std::vector<double>& value);

/// The value as a literal for an error message: cut after 60 bytes, one line.
std::string shown(const Value& value);

}  // namespace rondo::config
