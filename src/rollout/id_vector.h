// IdVector: a vector indexed by a strong id instead of a bare integer.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/check.h"

namespace rondo::rollout {

/// Holds one T for each id 0 … size() - 1. An id outside is a bug and aborts. Thread rules are std::vector's.
template <class IdType, class T>
class IdVector final {
 public:
  std::size_t size() const { return items_.size(); }
  bool contains(IdType id) const { return id.value() >= 0 && index(id) < items_.size(); }
  T& operator[](IdType id) { return items_[checked(id)]; }
  const T& operator[](IdType id) const { return items_[checked(id)]; }

  /// Appends an item and returns its id.
  IdType push_back(T item) {
    items_.push_back(std::move(item));
    return IdType(static_cast<decltype(IdType().value())>(items_.size() - 1));
  }
  /// Adds default items until `id` exists.
  void extend_to(IdType id) {
    if (!contains(id)) items_.resize(index(id) + 1);
  }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  static std::size_t index(IdType id) { return static_cast<std::size_t>(id.value()); }
  std::size_t checked(IdType id) const {
    RONDO_CHECK_LT(index(id), items_.size());
    return index(id);
  }

  std::vector<T> items_;
};

}  // namespace rondo::rollout
