#include "config/toml_reader.h"

#include <toml++/toml.h>

#include <algorithm>
#include <exception>

namespace rondo::config {
namespace {

constexpr std::size_t kMaxDocumentBytes = std::size_t{1} << 20;
constexpr int kMaxDepth = 64;
// The library nests dotted keys without a limit and frees them by recursion; a bound on the points of a
// document bounds that depth.
constexpr std::ptrdiff_t kMaxPoints = 10'000;

std::string key_part(std::string_view part) {
  const bool bare =
      !part.empty() &&
      part.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
          std::string_view::npos;
  return bare ? std::string(part) : literal(std::string(part));
}

template <class T, class Element>
Value list_of(const toml::array& array) {
  std::vector<T> out;
  for (const toml::node& node : array) out.push_back(static_cast<T>(node.as<Element>()->get()));
  return out;
}

bool all_numbers(const toml::array& array) {
  return std::all_of(array.begin(), array.end(), [](const toml::node& node) { return node.is_number(); });
}

Value array_value(const toml::array& array) {
  if (array.empty()) return std::vector<std::string>();
  if (array.is_homogeneous<std::string>()) return list_of<std::string, std::string>(array);
  if (array.is_homogeneous<double>()) return list_of<double, double>(array);
  if (!all_numbers(array)) return Opaque{"a list of other or mixed types"};
  std::vector<double> out;
  for (const toml::node& node : array) out.push_back(node.value<double>().value_or(0));
  return out;
}

Value leaf_value(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::boolean:
      return node.as_boolean()->get();
    case toml::node_type::integer:
      return node.as_integer()->get();
    case toml::node_type::floating_point:
      return node.as_floating_point()->get();
    case toml::node_type::string:
      return node.as_string()->get();
    case toml::node_type::array:
      return array_value(*node.as_array());
    case toml::node_type::table:
      return Opaque{"a section"};
    default:
      return Opaque{"a date or time"};
  }
}

int line_of(const toml::node& node) {
  return static_cast<int>(node.source().begin.line);
}

// Appends the entries below `table`; nullopt, or the line of a table that is nested too deep.
std::optional<int> flatten(const toml::table& table, const std::string& prefix, int depth,
                           std::vector<Entry>& out) {
  if (depth > kMaxDepth) return line_of(table);
  for (const auto& [key, node] : table) {
    std::string full = prefix + key_part(key.str());
    const toml::table* section = node.as_table();
    if (section != nullptr && !section->empty()) {
      if (auto too_deep = flatten(*section, full + ".", depth + 1, out)) return too_deep;
      continue;
    }
    const int line = static_cast<int>(key.source().begin.line);
    out.push_back({std::move(full), leaf_value(node), line, section != nullptr});
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<Entry>> parse_toml(std::string_view text, std::string_view source) {
  if (text.size() > kMaxDocumentBytes)
    return fail(Code::kInvalidArgument, "{} is over 1 MiB; a configuration is a short text", source);
  if (std::count(text.begin(), text.end(), '.') > kMaxPoints)
    return fail(Code::kInvalidArgument, "{} has over {} points ('.'); a configuration is a short text",
                source, kMaxPoints);
  try {
    const toml::table table = toml::parse(text, source);
    std::vector<Entry> entries;
    if (const auto line = flatten(table, "", 1, entries))
      return fail(Code::kInvalidArgument, "{}:{}: sections nested over {} deep", source, *line, kMaxDepth);
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.line < b.line; });
    return entries;
  } catch (const toml::parse_error& error) {
    return fail(Code::kInvalidArgument, "{}:{}: not valid TOML: {}", source, error.source().begin.line,
                error.description());
  } catch (const std::exception& error) {
    return fail(Code::kInternal, "{}: {}", source, error.what());
  }
}

std::optional<Value> parse_toml_literal(std::string_view text) {
  if (text.find_first_of("\r\n") != std::string_view::npos) return std::nullopt;
  const auto entries = parse_toml("v = " + std::string(text), "");
  if (!entries || entries->size() != 1 || entries->front().key != "v") return std::nullopt;
  return entries->front().value;
}

}  // namespace rondo::config
