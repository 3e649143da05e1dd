// JSON text of a log's rows: how values are written, and what is read back. The only user of the JSON
// library.
//
//   row    = "{" "\"step\":" integer *( "," name ":" value ) [ "," "\"measured\":" "[" names "]" ] "}"
//   value  = integer | number | "\"NaN\"" | "\"Infinity\"" | "\"-Infinity\""
//
// Numbers that JSON does not have are the strings that Python's float() and JavaScript's Number() read. A
// double always has a point or an exponent, so that 1.0 is not the integer 1. "measured" names the row's
// values that follow a clock or the machine; it is left out where there are none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "metrics/step_record.h"

namespace rondo::metrics {

/// The shortest text that reads back as `value`: equal bits give equal text, other bits another (NaNs aside).
std::string json_number(double value);
/// A JSON string; bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);
/// The row of one step, without a line end.
std::string json_row(std::int64_t step, const StepRecord& record);

/// The "step" of a row of any log. kDataLoss if the line is no JSON object with an integer "step".
Result<std::int64_t> step_of_row(std::string_view line);

/// The row without its measured values and the list of them, keys in order: rows of two runs that must be the
/// same have the same text. kDataLoss if the line is no JSON object.
Result<std::string> deterministic_part(std::string_view line);

}  // namespace rondo::metrics
