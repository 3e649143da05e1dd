#include "batch/plan.h"

namespace rondo::batch {

void Plan::clear() {
  tokens.clear();
  positions.clear();
  row_segments.clear();
  logit_rows.clear();
  segments.clear();
  branches.clear();
  stores.clear();
  tables.clear();
  copies.clear();
  restores.clear();
  preemptions.clear();
  parked_evictions.clear();
  evictions.clear();
  admissions.clear();
  version = -1;
}

std::optional<std::int32_t> Plan::next_row(const Segment& segment, std::int32_t row, Token token) const {
  const auto is = [this, token](std::int32_t r) { return tokens[static_cast<std::size_t>(r)] == token; };
  if (row + 1 < segment.end_chain_row() && is(row + 1)) return row + 1;
  for (const Branch& branch : branches_of(segment)) {
    const bool inside = row >= branch.first_row && row + 1 < branch.first_row + branch.num_rows;
    if (inside && is(row + 1)) return row + 1;
    if (branch.parent_row == row && is(branch.first_row)) return branch.first_row;
  }
  return std::nullopt;
}

}  // namespace rondo::batch
