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

/// One sequence's part of a step: compute positions [begin, end), and verify what is drafted behind them.
///
/// Its rows are those positions, then `num_drafts` drafted ones in a chain, then those of its branches.
/// Logits are wanted from the last known position on, if the step computes it.
struct Segment {
  Slot slot;
  RequestId id;
  std::int32_t begin = 0;
  std::int32_t end = 0;           // of the known positions
  std::int32_t num_drafts = 0;    // at positions end, end + 1, …
  std::int32_t first_row = 0;     // its rows are [first_row, first_row + num_rows)
  std::int32_t num_rows = 0;      // branches included
  std::int32_t table_begin = 0;   // its block table is tables[table_begin, table_begin + table_size)
  std::int32_t table_size = 0;    // covers [0, end + num_drafts) at least
  bool wants_logits = false;      // every known token is computed then
  std::int32_t first_logit = 0;   // its logit rows are logit_rows[first_logit, …), the first of row end - 1
  std::int32_t branch_begin = 0;  // its branches are branches[branch_begin, branch_end)
  std::int32_t branch_end = 0;
  bool operator==(const Segment&) const = default;

  /// The row of its last known position.
  std::int32_t root_row() const { return first_row + end - begin - 1; }
  std::int32_t end_chain_row() const { return first_row + end - begin + num_drafts; }
};

/// A further continuation of a segment's drafts, which forks off behind `parent_row`. It has a block table of
/// its own: the segment's blocks below the last known position's block, and new ones from there on.
struct Branch {
  std::int32_t parent_row = 0;
  std::int32_t first_row = 0;  // its rows are [first_row, first_row + num_rows), a chain
  std::int32_t num_rows = 0;
  std::int32_t position = 0;  // of its first row
  std::int32_t table_begin = 0;
  std::int32_t table_size = 0;
  std::int32_t num_kept = 0;  // blocks of the table that are the segment's
  bool operator==(const Branch&) const = default;
};

/// Rows whose K and V go to a branch's table as well: the drafts that it shares with the chain it forks off.
struct ExtraStore {
  std::int32_t first_row = 0;
  std::int32_t num_rows = 0;
  std::int32_t position = 0;  // of the first of them
  std::int32_t table_begin = 0;
  bool operator==(const ExtraStore&) const = default;
};

/// "Fill blocks [first_block, first_block + num_blocks) of this sequence's table from its stored KV."
struct Restore {
  Slot slot;
  std::int32_t first_block = 0;
  std::int32_t num_blocks = 0;
  std::int32_t table_begin = 0;
  bool operator==(const Restore&) const = default;
};

/// The rows of one step, flat, and the changes of the block bookkeeping that go with it.
///
/// The engine first carries out `restores` and `copies` (in any order), then runs all rows in one forward
/// pass: a row attends to the positions of its own sequence up to its own, some of which are rows of this
/// same pass. A plan does nothing by itself; throwing it away leaves no trace. Reuse one object: its vectors
/// keep their memory.
struct Plan {
  // Rows, grouped by segment, in ascending position within the segment's chain and each branch.
  std::vector<Token> tokens;               // [num_rows]
  std::vector<std::int32_t> positions;     // [num_rows], absolute in the sequence
  std::vector<std::int32_t> row_segments;  // [num_rows], index in segments
  std::vector<std::int32_t> logit_rows;    // rows whose logits are wanted, ascending; one Sample each

  std::vector<Segment> segments;
  std::vector<Branch> branches;
  std::vector<ExtraStore> stores;
  std::vector<BlockId> tables;  // the block tables of all segments and branches, concatenated
  std::vector<kv::BlockCopy> copies;
  std::vector<Restore> restores;

  // What commit() does to the bookkeeping, in this order; new blocks stand at the ends of the tables.
  std::vector<Slot> preemptions;
  std::vector<Slot> parked_evictions;
  std::vector<GroupId> evictions;  // kept prompts that are given up
  std::vector<Admission> admissions;

  // Scratch and identity, of the planner alone.
  kv::TentativePool pool;
  std::vector<std::int32_t> node_rows;
  std::int64_t version = -1;

  std::int32_t num_rows() const { return static_cast<std::int32_t>(tokens.size()); }
  bool empty() const { return segments.empty(); }
  std::span<const BlockId> table(const Segment& segment) const {
    return std::span(tables).subspan(static_cast<std::size_t>(segment.table_begin),
                                     static_cast<std::size_t>(segment.table_size));
  }
  std::span<const Branch> branches_of(const Segment& segment) const {
    return std::span(branches).subspan(static_cast<std::size_t>(segment.branch_begin),
                                       static_cast<std::size_t>(segment.branch_end - segment.branch_begin));
  }
  /// The blocks of a branch that are not the segment's.
  std::span<const BlockId> own_blocks(const Branch& branch) const {
    return std::span(tables).subspan(static_cast<std::size_t>(branch.table_begin + branch.num_kept),
                                     static_cast<std::size_t>(branch.table_size - branch.num_kept));
  }
  /// The drafted row that continues `row` of `segment` with `token`, if there is one: the draft is accepted
  /// then, and the next token is sampled there.
  std::optional<std::int32_t> next_row(const Segment& segment, std::int32_t row, Token token) const;
  void clear();
};

/// What the engine answers for one logit row: the token that plain decoding would draw there. Rows behind a
/// draft that is not accepted are never looked at.
struct Sample {
  Token token = 0;
  /// Set if the response ends with this token. The length limit need not be told: commit() applies it.
  std::optional<FinishReason> finish = {};
};

}  // namespace rondo::batch
