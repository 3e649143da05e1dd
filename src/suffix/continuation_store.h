// ContinuationStore: memory for the continuations of all contexts of a tree.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "suffix/continuation.h"
#include "suffix/continuation_table.h"
#include "suffix/pool.h"

namespace rondo::suffix {

/// The continuations of one context. The first by rank lies here, which is all that most contexts have and
/// all that a linear draft reads; the others lie in the store. A value-initialised list is empty.
struct ContinuationList {
  Continuation head;
  std::uint32_t rest = 0;  // 0: none, else where they lie: index << 3 | kind
};

/// Finds, counts and ranks the continuations in lists.
///
/// Others than the head lie in a sorted span of 1, 2, 4 or 8, or in a ContinuationTable when there are more.
/// Does not own the lists, and does not know contexts. Pointers to a continuation hold until the next change
/// of its list. Misuse (adding a token twice, changing an absent one) is a bug. One owner thread; concurrent
/// reads are fine between changes.
class ContinuationStore final {
 public:
  ContinuationStore();

  /// nullptr: absent.
  const Continuation* find(const ContinuationList& list, Token token) const;
  Continuation* find(ContinuationList& list, Token token);
  /// The continuation of that rank, 0 <= rank < kMaxRanked; nullptr: there are fewer.
  const Continuation* ranked(const ContinuationList& list, std::int32_t rank) const;
  /// All, the first kMaxRanked in order.
  std::vector<Continuation> entries(const ContinuationList& list) const;

  /// A new continuation of count 1.
  void add(ContinuationList& list, Token token, NodeId target);
  /// Adds one to the count of a continuation of `list`.
  void increment(ContinuationList& list, Continuation& entry);
  /// Takes one from its count, and the continuation out at zero.
  void decrement(ContinuationList& list, Continuation& entry);

  /// Another list with the same content.
  ContinuationList clone(const ContinuationList& list);
  /// Empties the list.
  void clear(ContinuationList& list);

  std::size_t bytes() const;
  /// A bound on what bytes() grows by while `num_lists` lists get one token each, one of them after it was
  /// cloned, which is not `uncloned`.
  std::size_t growth_bound(std::size_t num_lists, const ContinuationList& uncloned) const;
  /// Spans and tables in use, for leak checks: one for each list with a rest.
  std::size_t num_rests() const;

 private:
  // Kinds 1..4: a sorted span of 1 << (kind - 1); empty places last.
  static constexpr std::uint32_t kSmallKinds = 4;
  static constexpr std::uint32_t kTable = 5;

  static std::uint32_t kind_of(std::uint32_t rest) { return rest & 7; }
  static std::uint32_t index_of(std::uint32_t rest) { return rest >> 3; }
  static std::uint32_t make_rest(std::uint32_t index, std::uint32_t kind);

  std::span<Continuation> span_of(std::uint32_t rest);
  std::span<const Continuation> span_of(std::uint32_t rest) const;
  ContinuationTable& table_of(std::uint32_t rest) { return *tables_[index_of(rest)]; }
  const ContinuationTable& table_of(std::uint32_t rest) const { return *tables_[index_of(rest)]; }

  std::uint32_t allocate_span(std::uint32_t kind, std::span<const Continuation> content);
  std::uint32_t allocate_table(ContinuationTable table);
  void book(const ContinuationTable& table);
  void unbook(const ContinuationTable& table);
  void release(std::uint32_t rest);
  void insert_rest(ContinuationList& list, const Continuation& entry);
  void erase_rest(ContinuationList& list, Token token);
  void shrink_span(ContinuationList& list);
  void shrink_table(ContinuationList& list);

  std::array<Pool<Continuation>, kSmallKinds> spans_;
  std::vector<std::unique_ptr<ContinuationTable>> tables_;
  std::vector<std::uint32_t> free_tables_;
  std::size_t table_bytes_ = 0;   // of all tables
  std::size_t table_growth_ = 0;  // if one token were inserted into each
};

}  // namespace rondo::suffix
