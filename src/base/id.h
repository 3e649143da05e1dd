// Strong integer ids: RequestId and GroupId do not mix.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace rondo {

/// An integer that only compares with its own kind. `Tag` is a type that is never defined.
template <class Tag, class Rep = std::int64_t>
class Id final {
 public:
  constexpr Id() = default;
  constexpr explicit Id(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(Id,
                                    Id) = default;  // NOLINT(modernize-use-nullptr): of the generated code

 private:
  Rep value_ = Rep(-1);
};

using RequestId = Id<struct RequestIdTag>;
using GroupId = Id<struct GroupIdTag>;
using BlockId = Id<struct BlockIdTag, std::int32_t>;
using InstanceId = Id<struct InstanceIdTag, std::int32_t>;
using PolicyVersion = Id<struct PolicyVersionTag>;

/// A token id of a vocabulary. Plain because rows of them are arithmetic data.
using Token = std::int32_t;

}  // namespace rondo

template <class Tag, class Rep>
struct std::hash<rondo::Id<Tag, Rep>> {
  std::size_t operator()(rondo::Id<Tag, Rep> id) const noexcept { return std::hash<Rep>{}(id.value()); }
};

template <class Tag, class Rep>
struct fmt::formatter<rondo::Id<Tag, Rep>> : fmt::formatter<Rep> {
  template <class Context>
  auto format(rondo::Id<Tag, Rep> id, Context& context) const {
    return fmt::formatter<Rep>::format(id.value(), context);
  }
};
