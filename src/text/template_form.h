// A canonical form of Jinja chat templates, so that two spellings of one template compare equal.
#pragma once

#include <string>
#include <string_view>

namespace rondo::text {

/// Delimiters of the form; none of them can stand in the text of a template that is recognised.
inline constexpr char kFormBlock = '\x01';  // opens {% … %}
inline constexpr char kFormValue = '\x02';  // opens {{ … }}
inline constexpr char kFormClose = '\x03';

/// Rewrites a template, read as `transformers` reads it (trim_blocks, lstrip_blocks): comments and white
/// space inside tags go, `a.b` becomes `a["b"]`, a printed sum of strings becomes one tag for each term, a
/// printed literal becomes text, and the guard that sets add_generation_prompt where it is undefined goes.
/// Two templates of equal form render the same. Never fails: what it cannot read is kept as it is.
std::string template_form(std::string_view source);

}  // namespace rondo::text
