#include "metrics/json_row.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace rondo::metrics {
namespace {

using Json = nlohmann::json;

std::string json_value(const MetricValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *integer);
  return json_number(std::get<double>(value));
}

Result<Json> parse_object(std::string_view line) {
  Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object()) return fail(Code::kDataLoss, "not a JSON object");
  return row;
}

}  // namespace

std::string json_number(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string json_string(std::string_view text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string json_row(std::int64_t step, const StepRecord& record) {
  std::string row = fmt::format("{{\"step\":{}", step);
  std::string measured;
  for (const StepRecord::Entry& entry : record.entries()) {
    const std::string name = json_string(entry.name);
    row += fmt::format(",{}:{}", name, json_value(entry.value));
    if (entry.nature == Nature::kMeasured) measured += fmt::format("{}{}", measured.empty() ? "" : ",", name);
  }
  if (!measured.empty()) row += fmt::format(",\"measured\":[{}]", measured);
  return row + "}";
}

Result<std::int64_t> step_of_row(std::string_view line) {
  RONDO_ASSIGN(const Json row, parse_object(line));
  const auto step = row.find("step");
  if (step == row.end() || !step->is_number_integer())
    return fail(Code::kDataLoss, "a row without an integer \"step\"");
  return step->get<std::int64_t>();
}

Result<std::string> deterministic_part(std::string_view line) {
  RONDO_ASSIGN(Json row, parse_object(line));
  const Json measured = row.value("measured", Json::array());
  for (const Json& name : measured)
    if (name.is_string()) row.erase(name.get<std::string>());
  row.erase("measured");
  return row.dump();
}

}  // namespace rondo::metrics
