#include "kv/prefix.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace rondo::kv {

const BlockTable* PrefixCache::find(GroupId group) const {
  const auto it = std::ranges::find(entries_, group, &Entry::group);
  return it == entries_.end() ? nullptr : &it->table;
}

void PrefixCache::put(GroupId group, BlockTable table) {
  RONDO_CHECK(find(group) == nullptr);
  entries_.push_back({group, std::move(table)});
}

BlockTable PrefixCache::take(GroupId group) {
  const auto it = std::ranges::find(entries_, group, &Entry::group);
  RONDO_CHECK(it != entries_.end());
  BlockTable table = std::move(it->table);
  entries_.erase(it);
  return table;
}

}  // namespace rondo::kv
