#include "suffix/continuation_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace rondo::suffix {
namespace {

// A table this small goes back to a span; below the span's size, so that one token does not toggle it.
constexpr std::size_t kShrinkTableAt = 4;

std::size_t num_filled(std::span<const Continuation> span) {
  std::size_t count = span.size();
  while (count > 0 && span[count - 1].count == 0) --count;
  return count;
}

// Brings the raised entry at `place` to where it belongs.
void move_up(std::span<Continuation> span, std::size_t place) {
  for (; place > 0 && ranks_before(span[place], span[place - 1]); --place)
    std::swap(span[place], span[place - 1]);
}

void move_down(std::span<Continuation> span, std::size_t place) {
  const std::size_t size = num_filled(span);
  for (; place + 1 < size && ranks_before(span[place + 1], span[place]); ++place)
    std::swap(span[place], span[place + 1]);
}

}  // namespace

ContinuationStore::ContinuationStore()
    : spans_{Pool<Continuation>(0), Pool<Continuation>(1), Pool<Continuation>(2), Pool<Continuation>(3)} {}

std::uint32_t ContinuationStore::make_rest(std::uint32_t index, std::uint32_t kind) {
  RONDO_CHECK_LT(index, 1U << 29);
  return (index << 3) | kind;
}

std::span<Continuation> ContinuationStore::span_of(std::uint32_t rest) {
  const std::uint32_t log2_size = kind_of(rest) - 1;
  return {spans_[log2_size].at(index_of(rest)), std::size_t{1} << log2_size};
}

std::span<const Continuation> ContinuationStore::span_of(std::uint32_t rest) const {
  const std::uint32_t log2_size = kind_of(rest) - 1;
  return {spans_[log2_size].at(index_of(rest)), std::size_t{1} << log2_size};
}

const Continuation* ContinuationStore::find(const ContinuationList& list, Token token) const {
  if (list.head.token == token && list.head.count != 0) return &list.head;
  if (list.rest == 0) return nullptr;
  if (kind_of(list.rest) == kTable) return table_of(list.rest).find(token);
  for (const Continuation& entry : span_of(list.rest))
    if (entry.token == token && entry.count != 0) return &entry;
  return nullptr;
}

Continuation* ContinuationStore::find(ContinuationList& list, Token token) {
  return const_cast<Continuation*>(std::as_const(*this).find(list, token));  // NOLINT: the list is mutable
}

const Continuation* ContinuationStore::ranked(const ContinuationList& list, std::int32_t rank) const {
  if (rank == 0) return list.head.count == 0 ? nullptr : &list.head;
  if (list.rest == 0) return nullptr;
  const auto place = static_cast<std::size_t>(rank) - 1;
  if (kind_of(list.rest) == kTable) return table_of(list.rest).ranked(place);
  const auto span = span_of(list.rest);
  return place < span.size() && span[place].count != 0 ? &span[place] : nullptr;
}

std::vector<Continuation> ContinuationStore::entries(const ContinuationList& list) const {
  std::vector<Continuation> result;
  if (list.head.count == 0) return result;
  result.push_back(list.head);
  if (list.rest == 0) return result;
  if (kind_of(list.rest) == kTable) {
    auto rest = table_of(list.rest).entries();
    std::ranges::sort(rest, ranks_before);
    result.insert(result.end(), rest.begin(), rest.end());
  } else {
    const auto span = span_of(list.rest);
    result.insert(result.end(), span.begin(), span.begin() + static_cast<std::ptrdiff_t>(num_filled(span)));
  }
  return result;
}

std::uint32_t ContinuationStore::allocate_span(std::uint32_t kind, std::span<const Continuation> content) {
  const std::uint32_t rest = make_rest(spans_[kind - 1].allocate(), kind);
  const auto span = span_of(rest);
  std::ranges::fill(std::ranges::copy(content, span.begin()).out, span.end(), Continuation{});
  return rest;
}

std::uint32_t ContinuationStore::allocate_table(ContinuationTable table) {
  if (free_tables_.empty()) {
    free_tables_.push_back(static_cast<std::uint32_t>(tables_.size()));
    tables_.emplace_back();
    free_tables_.reserve(tables_.capacity());  // so that releasing takes no memory
  }
  const std::uint32_t index = free_tables_.back();
  free_tables_.pop_back();
  book(table);
  tables_[index] = std::make_unique<ContinuationTable>(std::move(table));
  return make_rest(index, kTable);
}

void ContinuationStore::book(const ContinuationTable& table) {
  table_bytes_ += table.bytes();
  table_growth_ += table.next_growth();
}

void ContinuationStore::unbook(const ContinuationTable& table) {
  table_bytes_ -= table.bytes();
  table_growth_ -= table.next_growth();
}

void ContinuationStore::release(std::uint32_t rest) {
  if (rest == 0) return;
  if (kind_of(rest) != kTable) return spans_[kind_of(rest) - 1].release(index_of(rest));
  unbook(table_of(rest));
  tables_[index_of(rest)].reset();
  free_tables_.push_back(index_of(rest));
}

void ContinuationStore::insert_rest(ContinuationList& list, const Continuation& entry) {
  if (list.rest == 0) {
    list.rest = allocate_span(1, {&entry, 1});
    return;
  }
  if (kind_of(list.rest) == kTable) {
    ContinuationTable& table = table_of(list.rest);
    unbook(table);
    table.insert(entry);
    book(table);
    return;
  }
  auto span = span_of(list.rest);
  std::size_t size = num_filled(span);
  if (size == span.size()) {
    const std::uint32_t full = list.rest;
    if (kind_of(full) == kSmallKinds) {
      ContinuationTable table;
      for (const Continuation& old : span) table.insert(old);
      table.insert(entry);
      list.rest = allocate_table(std::move(table));
      return release(full);
    }
    list.rest = allocate_span(kind_of(full) + 1, span);
    release(full);
    span = span_of(list.rest);
  }
  span[size] = entry;
  move_up(span, size);
}

// Taking something out must not take memory: without a free span of the smaller size the large one stays.
void ContinuationStore::shrink_span(ContinuationList& list) {
  const auto span = span_of(list.rest);
  const std::size_t size = num_filled(span);
  const std::uint32_t old = list.rest;
  if (size == 0) {
    list.rest = 0;
    return release(old);
  }
  const std::uint32_t smaller = kind_of(old) - 1;
  if (size > span.size() / 2 || spans_[smaller - 1].num_free() == 0) return;
  list.rest = allocate_span(smaller, span.first(size));
  release(old);
}

void ContinuationStore::shrink_table(ContinuationList& list) {
  if (table_of(list.rest).size() > kShrinkTableAt || spans_[kSmallKinds - 1].num_free() == 0) return;
  const std::uint32_t old = list.rest;
  auto content = table_of(old).entries();
  std::ranges::sort(content, ranks_before);
  list.rest = allocate_span(kSmallKinds, content);
  release(old);
}

void ContinuationStore::erase_rest(ContinuationList& list, Token token) {
  if (kind_of(list.rest) == kTable) {
    ContinuationTable& table = table_of(list.rest);
    unbook(table);
    table.erase(token);
    book(table);
    return shrink_table(list);
  }
  const auto span = span_of(list.rest);
  const auto at = std::ranges::find(span, token, &Continuation::token);
  *std::copy(at + 1, span.begin() + static_cast<std::ptrdiff_t>(num_filled(span)), at) = {};
  shrink_span(list);
}

void ContinuationStore::add(ContinuationList& list, Token token, NodeId target) {
  Continuation entry{.token = token, .count = 1, .target = target};
  if (list.head.count == 0) {
    list.head = entry;
    return;
  }
  if (ranks_before(entry, list.head)) std::swap(entry, list.head);
  insert_rest(list, entry);
}

void ContinuationStore::increment(ContinuationList& list, Continuation& entry) {
  if (&entry == &list.head) {
    ++entry.count;
    return;
  }
  if (kind_of(list.rest) != kTable) {
    const auto span = span_of(list.rest);
    ++entry.count;
    move_up(span, static_cast<std::size_t>(&entry - span.data()));
    if (ranks_before(span[0], list.head)) std::swap(span[0], list.head);
    return;
  }
  const Continuation raised{.token = entry.token, .count = entry.count + 1, .target = entry.target};
  if (!ranks_before(raised, list.head)) return table_of(list.rest).increment(entry);
  table_of(list.rest).exchange(entry.token, list.head);
  list.head = raised;
}

void ContinuationStore::decrement(ContinuationList& list, Continuation& entry) {
  const bool is_head = &entry == &list.head;
  if (is_head && list.rest == 0) {
    if (--entry.count == 0) entry = {};
    return;
  }
  if (!is_head) {
    if (entry.count == 1) return erase_rest(list, entry.token);
    if (kind_of(list.rest) == kTable) return table_of(list.rest).decrement(entry);
    --entry.count;
    const auto span = span_of(list.rest);
    return move_down(span, static_cast<std::size_t>(&entry - span.data()));
  }
  --entry.count;
  const Continuation second = *ranked(list, 1);
  if (entry.count != 0 && !ranks_before(second, entry)) return;
  const Continuation lowered = std::exchange(list.head, second);
  if (lowered.count == 0) return erase_rest(list, second.token);
  erase_rest(list, second.token);
  insert_rest(list, lowered);
}

ContinuationList ContinuationStore::clone(const ContinuationList& list) {
  ContinuationList copy{.head = list.head};
  if (list.rest == 0) return copy;
  copy.rest = kind_of(list.rest) == kTable ? allocate_table(table_of(list.rest))
                                           : allocate_span(kind_of(list.rest), span_of(list.rest));
  return copy;
}

void ContinuationStore::clear(ContinuationList& list) {
  release(list.rest);
  list = {};
}

std::size_t ContinuationStore::bytes() const {
  std::size_t total = table_bytes_ + tables_.capacity() * sizeof(tables_[0]) +
                      free_tables_.capacity() * sizeof(std::uint32_t);
  for (const auto& pool : spans_) total += pool.bytes();
  return total;
}

std::size_t ContinuationStore::growth_bound(std::size_t num_lists, const ContinuationList& uncloned) const {
  // Every full table may double, every list may turn into a table, and a clone may be of any but one, and
  // full.
  constexpr std::size_t kNewTable = sizeof(ContinuationTable) + 32 * sizeof(Continuation);
  constexpr std::size_t kTableName = sizeof(tables_[0]) + sizeof(std::uint32_t);
  const bool is_table = uncloned.rest != 0 && kind_of(uncloned.rest) == kTable;
  const std::size_t clonable = table_bytes_ - (is_table ? table_of(uncloned.rest).bytes() : 0);
  std::size_t total = table_growth_ + 2 * clonable + num_lists * (kNewTable + kTableName);
  if (tables_.size() + num_lists > tables_.capacity()) total += (tables_.capacity() + num_lists) * kTableName;
  for (const auto& pool : spans_) total += pool.growth_bound(num_lists);
  return total;
}

std::size_t ContinuationStore::num_rests() const {
  std::size_t total = tables_.size() - free_tables_.size();
  for (const auto& pool : spans_) total += pool.num_used();
  return total;
}

}  // namespace rondo::suffix
