// ContinuationTable: the continuations of a context that has many.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "suffix/continuation.h"

namespace rondo::suffix {

/// A hash table from token to continuation that also knows its kMaxRanked first ones by rank.
///
/// Raising a count costs O(kMaxRanked); lowering one of the first may look at all. Misuse (an absent token, a
/// token twice) is a bug. Pointers into the table hold until the next insert, exchange or erase. One owner
/// thread.
class ContinuationTable final {
 public:
  ContinuationTable();

  std::size_t size() const { return size_; }
  std::size_t bytes() const { return sizeof(*this) + slots_.capacity() * sizeof(Continuation); }
  /// What an insert now would add to bytes().
  std::size_t next_growth() const { return is_full() ? slots_.capacity() * sizeof(Continuation) : 0; }

  /// nullptr: absent.
  Continuation* find(Token token);
  const Continuation* find(Token token) const;
  /// The continuation of that rank, 0 <= rank < kMaxRanked; nullptr: there are fewer.
  const Continuation* ranked(std::size_t rank) const;
  /// All of them, in no order.
  std::vector<Continuation> entries() const;

  void insert(const Continuation& entry);
  void erase(Token token);
  /// Adds one to the count of an entry of this table.
  void increment(Continuation& entry);
  /// Takes one from the count, which stays positive, of an entry of this table.
  void decrement(Continuation& entry);
  /// Takes `token` out and puts `entry` in, which ranks before all the others.
  void exchange(Token token, const Continuation& entry);

 private:
  struct Ranked {
    Token token = 0;
    std::uint32_t count = 0;
  };

  bool is_full() const { return (size_ + 1) * 4 > slots_.size() * 3; }
  std::size_t home(Token token) const;
  std::size_t slot_of(Token token) const;
  std::size_t num_ranked() const;
  std::size_t rank_of(Token token) const;
  Continuation& place(const Continuation& entry);
  void close_gap(std::size_t gap);
  void resize(std::uint32_t log2_slots);
  void move_up(std::size_t rank);
  void offer(const Continuation& entry);
  void rank_all();

  std::vector<Continuation> slots_;  // open addressing, a power of two
  std::uint32_t log2_slots_;
  std::size_t size_ = 0;
  std::array<Ranked, kMaxRanked> ranked_;  // copies of the first ones
};

}  // namespace rondo::suffix
