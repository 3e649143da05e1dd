// "Did you mean …": the nearest valid name to a mistyped one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rondo {

/// Damerau-Levenshtein distance (adjacent transpositions count once), in bytes. O(|a|·|b|).
int edit_distance(std::string_view a, std::string_view b);

/// The candidate with the smallest distance to `name` (the first of equals); empty if there are none.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace rondo
