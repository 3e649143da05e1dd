// Continuation: a token that follows a context, how often, and where it leads.
#pragma once

#include <cstdint>

#include "base/id.h"

namespace rondo::suffix {

/// A node of the tree.
using NodeId = std::uint32_t;

struct Continuation {
  Token token = 0;
  std::uint32_t count = 0;  // 0: an empty place
  NodeId target = 0;        // the node of the context followed by this token
  bool operator==(const Continuation&) const = default;
};

/// The one order of continuations: more frequent first, ties to the lower token.
inline bool ranks_before(const Continuation& a, const Continuation& b) {
  return a.count != b.count ? a.count > b.count : a.token < b.token;
}

/// How many of a context's continuations are kept in order; drafts branch at most this wide.
inline constexpr std::int32_t kMaxRanked = 8;

}  // namespace rondo::suffix
