// Finding the answer in a response as verl's GSM8K scorer does.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rondo::reward {

/// The number behind the last "#### " in the last 300 characters (code points), without its commas; nullopt
/// if there is none. The text need not be valid UTF-8. O(size).
std::optional<std::string> gsm8k_answer(std::string_view response);

/// The last number in the last 300 characters, as it stands; nullopt if there is none.
std::optional<std::string> gsm8k_flexible_answer(std::string_view response);

}  // namespace rondo::reward
