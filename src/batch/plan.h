// Plan: what one step of an engine does, as plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/id.h"
#include "batch/roster.h"
#include "batch/sequence.h"
#include "kv/block_pool.h"
#include "kv/tentative_pool.h"

namespace rondo::batch {

/// One sequence's part of a step: compute positions [begin, end).
struct Segment {
  Slot slot;
  RequestId id;
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int32_t first_row = 0;    // its rows are [first_row, first_row + end - begin)
  std::int32_t table_begin = 0;  // its block table is tables[table_begin, table_begin + table_size)
  std::int32_t table_size = 0;   // covers [0, end) at least
  bool wants_logits = false;     // of its last row: every known token is computed then
  bool operator==(const Segment&) const = default;
};

/// The rows of one step, flat, and the changes of the block bookkeeping that go with it.
///
/// The engine first carries out `copies` (in any order), then runs all rows in one forward pass: a row
/// attends to the positions of its own sequence up to its own, some of which are rows of this same pass. A
/// plan does nothing by itself; throwing it away leaves no trace. Reuse one object: its vectors keep their
/// memory.
struct Plan {
  // Rows, grouped by segment, in ascending position.
  std::vector<Token> tokens;               // [num_rows]
  std::vector<std::int32_t> positions;     // [num_rows], absolute in the sequence
  std::vector<std::int32_t> row_segments;  // [num_rows], index in segments
  std::vector<std::int32_t> logit_rows;    // rows whose logits are wanted, ascending; one Sample each

  std::vector<Segment> segments;
  std::vector<BlockId> tables;  // the block tables of all segments, concatenated
  std::vector<kv::BlockCopy> copies;

  // What commit() does to the bookkeeping, in this order; new blocks stand at the ends of the tables.
  std::vector<Slot> preemptions;
  std::vector<GroupId> evictions;  // kept prompts that are given up
  std::vector<Admission> admissions;

  // Scratch and identity, of the planner alone.
  kv::TentativePool pool;
  std::int64_t version = -1;

  std::int32_t num_rows() const { return static_cast<std::int32_t>(tokens.size()); }
  bool empty() const { return segments.empty(); }
  std::span<const BlockId> table(const Segment& segment) const {
    return std::span(tables).subspan(static_cast<std::size_t>(segment.table_begin),
                                     static_cast<std::size_t>(segment.table_size));
  }
  void clear();
};

/// What the engine answers for one logit row.
struct Sample {
  Token token = 0;
  /// Set if the response ends with this token. The length limit need not be told: commit() applies it.
  std::optional<FinishReason> finish = {};
};

}  // namespace rondo::batch
