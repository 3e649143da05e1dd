// JSON from outside: no duplicate keys, a bounded depth, and errors as values. For the .cc files of this
// module.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace rondo::hf {

/// Checks the events of a nlohmann parse; throws std::invalid_argument at the first violation.
class StrictJsonChecker final {
 public:
  explicit StrictJsonChecker(std::size_t max_depth) : max_depth_(max_depth) {}

  void open() {
    keys_.emplace_back();
    if (keys_.size() > max_depth_)
      throw std::invalid_argument(fmt::format("nested deeper than {}", max_depth_));
  }
  void close() { keys_.pop_back(); }
  void key(const std::string& name) {
    if (!keys_.back().insert(name).second)
      throw std::invalid_argument(fmt::format("the key '{}' appears twice in one object", name));
  }

 private:
  std::size_t max_depth_;
  std::vector<std::set<std::string>> keys_;  // one set per open object or array
};

/// Parses `text` whole. Json is nlohmann::json, or ordered_json where the order of keys matters (its objects
/// cost quadratic time, so only for small texts). Anything but one well-formed value is kDataLoss.
template <class Json>
Result<Json> parse_strict_json(std::string_view text, std::size_t max_depth) {
  using Event = typename Json::parse_event_t;
  StrictJsonChecker checker(max_depth);
  const auto check = [&checker](int, Event event, Json& parsed) {
    switch (event) {
      case Event::object_start:
      case Event::array_start:
        checker.open();
        break;
      case Event::object_end:
      case Event::array_end:
        checker.close();
        break;
      case Event::key:
        checker.key(parsed.template get_ref<const std::string&>());
        break;
      case Event::value:
        break;
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), check);
  } catch (const std::exception& error) {
    return fail(Code::kDataLoss, "not valid JSON: {}", error.what());
  }
}

/// The value as JSON text, cut where a message would become unreadable.
template <class Json>
std::string brief(const Json& value) {
  constexpr std::size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  if (text.size() > kLongest) text.replace(kLongest, std::string::npos, "...");
  return text;
}

/// Whether nlohmann can write `text`; it throws on anything but UTF-8.
inline bool is_utf8(std::string_view text) {
  try {
    return !nlohmann::json(text).dump().empty();
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

}  // namespace rondo::hf
