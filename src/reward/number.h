// Decimal numbers in running text, compared without rounding.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rondo::reward {

/// The last decimal number of `text` in canonical form: no leading zeros, no "+", no thousands commas, no
/// trailing zeros after the point, no "-0"; "-1,234.50" is "-1234.5". nullopt if there is none.
///
/// A number is digits, in groups of three behind commas if there are commas at all, with digits behind a
/// point if there is a point; ".5" is one as well. A sign counts unless a letter, digit or closing bracket
/// stands before it
/// ("10-3" ends in 3). Exponents and fractions are not numbers: "1e5" ends in 5, "3/4" in 4. O(size).
std::optional<std::string> last_number(std::string_view text);

/// The canonical form of `text` if it is one number and nothing else but white space.
std::optional<std::string> whole_number(std::string_view text);

}  // namespace rondo::reward
