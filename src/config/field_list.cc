#include "config/field_list.h"

#include <algorithm>

#include "base/check.h"

namespace rondo::config {
namespace {

bool is_bare_key(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !name.empty() && std::all_of(name.begin(), name.end(), allowed);
}

}  // namespace

void FieldList::field(std::string_view name, bool& variable, std::string_view doc) {
  add(name, doc, &variable, {});
}
void FieldList::field(std::string_view name, int& variable, std::string_view doc, IntBounds range) {
  add(name, doc, &variable, range);
}
void FieldList::field(std::string_view name, std::int64_t& variable, std::string_view doc, IntBounds range) {
  add(name, doc, &variable, range);
}
void FieldList::field(std::string_view name, std::uint32_t& variable, std::string_view doc, IntBounds range) {
  add(name, doc, &variable, range);
}
void FieldList::field(std::string_view name, float& variable, std::string_view doc, NumberBounds range) {
  add(name, doc, &variable, range);
}
void FieldList::field(std::string_view name, double& variable, std::string_view doc, NumberBounds range) {
  add(name, doc, &variable, range);
}
void FieldList::field(std::string_view name, std::string& variable, std::string_view doc) {
  add(name, doc, &variable, {});
}
void FieldList::field(std::string_view name, ByteSize& variable, std::string_view doc, IntBounds range) {
  add(name, doc, &variable, range);
}
void FieldList::field(std::string_view name, std::vector<std::string>& variable, std::string_view doc) {
  add(name, doc, &variable, {});
}
void FieldList::field(std::string_view name, std::vector<double>& variable, std::string_view doc,
                      NumberBounds range) {
  add(name, doc, &variable, range);
}

const Field* FieldList::find(std::string_view key) const {
  for (const Section& section : sections_)
    for (const Field& field : section.fields)
      if (field.key() == key) return &field;
  return nullptr;
}

std::vector<std::string> FieldList::keys() const {
  std::vector<std::string> out;
  for (const Section& section : sections_)
    for (const Field& field : section.fields) out.push_back(field.key());
  return out;
}

Result<void> FieldList::validate() const {
  for (const Validator& validator : validators_) {
    auto valid = validator.validate(validator.config);
    if (valid) continue;
    if (validator.key.empty()) return valid;
    return tl::unexpected<Status>(std::move(valid).error().with_context(validator.key));
  }
  return {};
}

std::size_t FieldList::enter(std::string_view name, std::string_view doc) {
  const std::size_t parent = current_;
  std::string key = sections_.empty() ? std::string() : full_key(name);
  for (const Section& section : sections_) RONDO_CHECK_NE(section.key, key);
  RONDO_CHECK(find(key) == nullptr);
  sections_.push_back({std::move(key), std::string(doc), {}});
  current_ = sections_.size() - 1;
  return parent;
}

void FieldList::add(std::string_view name, std::string_view doc, Field::Target target, Field::Range range) {
  std::string key = full_key(name);
  RONDO_CHECK(find(key) == nullptr);
  for (const Section& section : sections_) RONDO_CHECK_NE(section.key, key);
  sections_[current_].fields.emplace_back(std::move(key), std::string(doc), std::move(target), range);
}

std::string FieldList::full_key(std::string_view name) const {
  RONDO_CHECK(is_bare_key(name));
  const std::string& parent = sections_[current_].key;
  return parent.empty() ? std::string(name) : parent + "." + std::string(name);
}

}  // namespace rondo::config
