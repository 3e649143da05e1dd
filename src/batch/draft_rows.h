// DraftRows: turns a sequence's draft into rows of a plan, as a chain and branches.
#pragma once

#include <cstdint>

#include "batch/drafts.h"
#include "batch/plan.h"

namespace rondo::batch {

/// What a draft may use.
struct DraftRoom {
  std::int32_t max_depth = 0;   // drafted positions behind the last known one
  std::int32_t max_rows = 0;    // of chain and branches
  std::int32_t max_blocks = 0;  // new ones, for the chain first
};

/// Appends as much of `draft` to the segment under construction, whose known rows and table stand at the ends
/// of the plan's, as there is room for: first a chain, in the segment's own table, then branches with tables
/// of their own. Returns the number of new blocks. A node whose parent finds no room finds none.
std::int32_t add_draft_rows(const Draft& draft, const DraftRoom& room, Segment& segment, Plan& plan);

}  // namespace rondo::batch
