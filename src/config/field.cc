// The typed half of Field: everything that asks what kind of variable it points to.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/check.h"
#include "base/text_distance.h"
#include "config/field_list.h"

namespace rondo::config {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

bool is_finite(double number) {
  return std::isfinite(number);
}

// Whether a value is, or holds, an infinity or NaN.
bool has_non_finite(const Value& value) {
  if (const auto* number = std::get_if<double>(&value)) return !is_finite(*number);
  const auto* list = std::get_if<std::vector<double>>(&value);
  return list != nullptr && !std::ranges::all_of(*list, is_finite);
}

// convert(value, variable type) is what the variable would hold, or nullopt where the types do not match or
// the number does not fit the variable. No field means anything by an infinity or NaN, which would only come
// out hours later, in a sum. Ranges are checked on the result.

std::optional<bool> convert(const Value& value, const bool*) {
  const auto* held = std::get_if<bool>(&value);
  return held != nullptr ? std::optional(*held) : std::nullopt;
}

template <class T>
requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) std::optional<T> convert(const Value& value,
                                                                                     const T*) {
  const auto* held = std::get_if<std::int64_t>(&value);
  if (held == nullptr || !std::in_range<T>(*held)) return std::nullopt;
  return static_cast<T>(*held);
}

template <class T>
requires std::is_floating_point_v<T> std::optional<T> convert(const Value& value, const T*) {
  double number = 0;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    number = static_cast<double>(*integer);
  } else if (const auto* real = std::get_if<double>(&value)) {
    number = *real;
  } else {
    return std::nullopt;
  }
  const T stored = static_cast<T>(number);
  return std::isfinite(stored) ? std::optional(stored) : std::nullopt;
}

std::optional<std::string> convert(const Value& value, const std::string*) {
  const auto* held = std::get_if<std::string>(&value);
  return held != nullptr ? std::optional(*held) : std::nullopt;
}

std::optional<ByteSize> convert(const Value& value, const ByteSize*) {
  if (const auto* integer = std::get_if<std::int64_t>(&value))
    return *integer >= 0 ? std::optional(ByteSize{*integer}) : std::nullopt;
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return std::nullopt;
  const auto size = parse_byte_size(*text);
  return size ? std::optional(*size) : std::nullopt;
}

std::optional<std::vector<std::string>> convert(const Value& value, const std::vector<std::string>*) {
  const auto* held = std::get_if<std::vector<std::string>>(&value);
  return held != nullptr ? std::optional(*held) : std::nullopt;
}

std::optional<std::vector<double>> convert(const Value& value, const std::vector<double>*) {
  const auto* text = std::get_if<std::vector<std::string>>(&value);
  if (text != nullptr && text->empty()) return std::vector<double>();
  const auto* held = std::get_if<std::vector<double>>(&value);
  if (held == nullptr) return std::nullopt;
  return std::ranges::all_of(*held, is_finite) ? std::optional(*held) : std::nullopt;
}

std::optional<std::int64_t> convert(const Value& value, const Field::Enum& target) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return std::nullopt;
  for (const auto& [number, name] : target.names)
    if (name == *text) return number;
  return std::nullopt;
}

template <class T>
bool inside(const Bounds<T>& bounds, T value) {
  return !(bounds.min && value < *bounds.min) && !(bounds.above && value <= *bounds.above) &&
         !(bounds.max && value > *bounds.max) && !(bounds.below && value >= *bounds.below);
}

// Whether a converted value lies in the field's range.
template <class T>
bool in_range(const Field::Range& range, const T& value) {
  if constexpr (std::is_same_v<T, std::vector<double>>) {
    for (const double element : value)
      if (!in_range(range, element)) return false;
  } else if constexpr (std::is_same_v<T, ByteSize>) {
    return in_range(range, value.bytes);
  } else if constexpr (std::is_floating_point_v<T>) {
    if (const auto* bounds = std::get_if<NumberBounds>(&range))
      return inside(*bounds, static_cast<double>(value));
  } else if constexpr (std::is_integral_v<T>) {
    if (const auto* bounds = std::get_if<IntBounds>(&range))
      return inside(*bounds, static_cast<std::int64_t>(value));
  }
  return true;
}

template <class T>
std::string bounds_text(const Bounds<T>& bounds) {
  std::string out;
  const auto append = [&out](const char* sign, const std::optional<T>& bound) {
    if (bound) out += fmt::format("{}{} {}", out.empty() ? "" : " and ", sign, *bound);
  };
  append(">=", bounds.min);
  append(">", bounds.above);
  append("<=", bounds.max);
  append("<", bounds.below);
  return out;
}

// What the variable can hold, where a number of the right kind is beyond it.
const char* storage_text(const Field::Target& target, const Value& value) {
  const bool integer = std::holds_alternative<std::int64_t>(value);
  if (integer && std::holds_alternative<int*>(target)) return " of 32 bits";
  if (integer && std::holds_alternative<std::uint32_t*>(target)) return " from 0 to 4294967295";
  const bool real = std::holds_alternative<double>(value) && !has_non_finite(value);
  return real && std::holds_alternative<float*>(target) ? " of single precision" : "";
}

std::string enum_type_name(const Field::Enum& target) {
  std::string out;
  for (const auto& [number, name] : target.names)
    out += fmt::format("{}{}", out.empty() ? "" : " | ", literal(name));
  return out;
}

// "; did you mean "x"?" for a text that is close to a name of the enum.
std::string enum_hint(const Field::Target& target, const Value& value) {
  const auto* enumeration = std::get_if<Field::Enum>(&target);
  const auto* text = std::get_if<std::string>(&value);
  if (enumeration == nullptr || text == nullptr || text->size() > 100) return "";
  std::vector<std::string> names;
  for (const auto& [number, name] : enumeration->names) names.push_back(name);
  return fmt::format("; did you mean {}?", literal(nearest_name(*text, names)));
}

}  // namespace

Field::Field(std::string key, std::string doc, Target target, Range range)
    : key_(std::move(key)), doc_(std::move(doc)), target_(std::move(target)), range_(range) {}

Shape Field::shape() const {
  return std::visit(
      Overloaded{[](const bool*) { return Shape::kBoolean; }, [](const int*) { return Shape::kInteger; },
                 [](const std::int64_t*) { return Shape::kInteger; },
                 [](const std::uint32_t*) { return Shape::kInteger; },
                 [](const float*) { return Shape::kNumber; }, [](const double*) { return Shape::kNumber; },
                 [](const std::string*) { return Shape::kText; },
                 [](const ByteSize*) { return Shape::kText; },
                 [](const std::vector<std::string>*) { return Shape::kTextList; },
                 [](const std::vector<double>*) { return Shape::kNumberList; },
                 [](const Enum&) { return Shape::kText; }},
      target_);
}

std::string Field::type_name() const {
  if (const auto* enumeration = std::get_if<Enum>(&target_)) return enum_type_name(*enumeration);
  if (std::holds_alternative<ByteSize*>(target_)) return "byte size";
  switch (shape()) {
    case Shape::kBoolean:
      return "boolean";
    case Shape::kInteger:
      return "integer";
    case Shape::kNumber:
      return "number";
    case Shape::kText:
      return "string";
    case Shape::kTextList:
      return "list of strings";
    case Shape::kNumberList:
      return "list of numbers";
  }
  return "";
}

std::string Field::range_text() const {
  const auto text = std::visit(Overloaded{[](std::monostate) { return std::string(); },
                                          [](const auto& bounds) { return bounds_text(bounds); }},
                               range_);
  const bool bytes = std::holds_alternative<ByteSize*>(target_);
  return bytes && !text.empty() ? text + " bytes" : text;
}

std::string Field::current() const {
  return std::visit(Overloaded{[](const Enum& target) {
                                 const std::int64_t value = target.get(target.object);
                                 for (const auto& [number, name] : target.names)
                                   if (number == value) return literal(name);
                                 internal::check_failed(__FILE__, __LINE__, "enum_names",
                                                        fmt::format("no name for {}", value));
                               },
                               [](const ByteSize* size) { return literal(to_string(*size)); },
                               [](const int* value) { return literal(std::int64_t{*value}); },
                               [](const std::uint32_t* value) { return literal(std::int64_t{*value}); },
                               [](const auto* value) { return literal(*value); }},
                    target_);
}

Result<void> Field::check(const Value& value) const {
  bool converts = false;
  const bool fits = std::visit(
      [&](const auto& target) {
        const auto converted = convert(value, target);
        converts = converted.has_value();
        return converts && in_range(range_, *converted);
      },
      target_);
  if (fits) return {};
  const char* article = std::holds_alternative<Enum>(target_) ? "one of"
                        : shape() == Shape::kInteger          ? "an"
                                                              : "a";
  const bool takes_numbers = shape() == Shape::kNumber || shape() == Shape::kNumberList;
  std::string wanted = type_name();
  if (takes_numbers && has_non_finite(value)) wanted.insert(wanted.find("number"), "finite ");
  const std::string range = range_text();
  return fail(Code::kInvalidArgument, "{} must be {} {}{}{}{}, given {}{}", key_, article, wanted,
              converts ? "" : storage_text(target_, value), range.empty() ? "" : " ", range, shown(value),
              enum_hint(target_, value));
}

void Field::assign(const Value& value) const {
  RONDO_CHECK(check(value).has_value());
  std::visit(Overloaded{[&](const Enum& target) { target.set(target.object, *convert(value, target)); },
                        [&](auto* target) { *target = *convert(value, target); }},
             target_);
}

}  // namespace rondo::config
