// FieldList: the fields of a config struct as a flat list, gathered by the struct's own `visit`.
//
// A component describes its configuration once, without including anything of this module:
//
//   struct Config {
//     int n = 8;
//     double temperature = 1.0;
//     LossAggregation loss_agg_mode = LossAggregation::kTokenMean;
//     Sampling::Config sampling;
//     template <class V>
//     void visit(V& v) {
//       v.field("n", n, "Responses per prompt.", {.min = 1});
//       v.field("temperature", temperature, "Sampling temperature; 0 is greedy.", {.min = 0});
//       v.field("loss_agg_mode", loss_agg_mode, "How token losses are averaged.");
//       v.section("sampling", sampling, "Cut-offs of the sampling distribution.");
//     }
//     Result<void> validate() const;  // optional: what no single range can say
//   };
//
// An enum names its values beside its definition, found by argument-dependent lookup:
//
//   constexpr auto enum_names(LossAggregation) {
//     using enum LossAggregation;
//     return std::array{std::pair{kTokenMean, "token-mean"}, std::pair{kSeqMean, "seq-mean-token-mean"}};
//   }
//
// `visit` is not const because loading writes through it; to print a const config, visit a copy.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "config/byte_size.h"
#include "config/value.h"

namespace rondo::config {

/// The range of a field; `min` and `max` belong to it, `above` and `below` do not.
template <class T>
struct Bounds {
  std::optional<T> min{};
  std::optional<T> above{};
  std::optional<T> max{};
  std::optional<T> below{};
};
using IntBounds = Bounds<std::int64_t>;
using NumberBounds = Bounds<double>;

/// What kind of text an override for a field is read as.
enum class Shape { kBoolean, kInteger, kNumber, kText, kTextList, kNumberList };

/// One field: its full key, type, range and doc, and access to the variable itself, whatever its type.
/// Borrows the variable; does not own it. Owner thread of the config.
class Field final {
 public:
  /// An enum variable behind two functions, with its names in declaration order.
  struct Enum {
    void* object;
    std::int64_t (*get)(const void* object);
    void (*set)(void* object, std::int64_t value);
    std::vector<std::pair<std::int64_t, std::string>> names;
  };
  using Target = std::variant<bool*, int*, std::int64_t*, std::uint32_t*, float*, double*, std::string*,
                              ByteSize*, std::vector<std::string>*, std::vector<double>*, Enum>;
  using Range = std::variant<std::monostate, IntBounds, NumberBounds>;

  Field(std::string key, std::string doc, Target target, Range range);

  /// The full key, e.g. "rollout.n".
  const std::string& key() const { return key_; }
  const std::string& doc() const { return doc_; }
  Shape shape() const;
  /// "integer", "list of strings", "\"a\" | \"b\"".
  std::string type_name() const;
  /// ">= 1", "> 0 and <= 1"; empty where every value of the type is allowed.
  std::string range_text() const;

  /// The variable's value as a TOML literal.
  std::string current() const;
  /// Whether `value` fits; if not, kInvalidArgument with key, expected type and range, and the value.
  Result<void> check(const Value& value) const;
  /// Stores a value that passed check().
  void assign(const Value& value) const;

 private:
  std::string key_;
  std::string doc_;
  Target target_;
  Range range_;
};

/// Visits a config struct and keeps its fields and sections in declaration order.
///
/// Does not own the config, which must outlive it and stay where it is. Owner thread of the config. A key
/// that occurs twice, or is not a bare TOML key, is a bug of the struct and aborts.
class FieldList final {
 public:
  struct Section {
    std::string key;  // full key; the root's is empty
    std::string doc;
    std::vector<Field> fields;
  };

  template <class C>
  requires(!std::same_as<std::remove_cv_t<C>, FieldList>) explicit FieldList(C& config) {
    enter("", "");
    visit_section(config);
  }

  void field(std::string_view name, bool& variable, std::string_view doc);
  void field(std::string_view name, int& variable, std::string_view doc, IntBounds range = {});
  void field(std::string_view name, std::int64_t& variable, std::string_view doc, IntBounds range = {});
  void field(std::string_view name, std::uint32_t& variable, std::string_view doc, IntBounds range = {});
  void field(std::string_view name, float& variable, std::string_view doc, NumberBounds range = {});
  void field(std::string_view name, double& variable, std::string_view doc, NumberBounds range = {});
  void field(std::string_view name, std::string& variable, std::string_view doc);
  /// The range is in bytes.
  void field(std::string_view name, ByteSize& variable, std::string_view doc, IntBounds range = {});
  void field(std::string_view name, std::vector<std::string>& variable, std::string_view doc);
  /// The range holds for each element.
  void field(std::string_view name, std::vector<double>& variable, std::string_view doc,
             NumberBounds range = {});
  template <class E>
  requires std::is_enum_v<E>
  void field(std::string_view name, E& variable, std::string_view doc) {
    Field::Enum target{&variable,
                       [](const void* object) { return std::int64_t(*static_cast<const E*>(object)); },
                       [](void* object, std::int64_t value) { *static_cast<E*>(object) = E(value); },
                       {}};
    for (const auto& [value, text] : enum_names(E{})) target.names.emplace_back(std::int64_t(value), text);
    add(name, doc, std::move(target), {});
  }

  /// A nested struct; its keys are prefixed with `name` and a point.
  template <class C>
  void section(std::string_view name, C& config, std::string_view doc) {
    const std::size_t parent = enter(name, doc);
    visit_section(config);
    current_ = parent;
  }

  /// Every section with its own fields, a section before its subsections; the root is the first.
  const std::vector<Section>& sections() const { return sections_; }
  /// The field with this full key, or nullptr.
  const Field* find(std::string_view key) const;
  /// All full keys, in declaration order.
  std::vector<std::string> keys() const;

  /// Calls every struct's own validate(), inner structs first; an error is prefixed with its section.
  Result<void> validate() const;

 private:
  struct Validator {
    std::string key;
    const void* config;
    Result<void> (*validate)(const void* config);
  };

  // Starts a section below the current one; returns the index of the one to come back to.
  std::size_t enter(std::string_view name, std::string_view doc);
  void add(std::string_view name, std::string_view doc, Field::Target target, Field::Range range);
  std::string full_key(std::string_view name) const;

  template <class C>
  void visit_section(C& config) {
    const std::size_t index = current_;
    config.visit(*this);
    if constexpr (requires(const C& c) { c.validate(); })
      validators_.push_back({sections_[index].key, &config,
                             [](const void* object) { return static_cast<const C*>(object)->validate(); }});
  }

  std::vector<Section> sections_;
  std::vector<Validator> validators_;
  std::size_t current_ = 0;
};

}  // namespace rondo::config
