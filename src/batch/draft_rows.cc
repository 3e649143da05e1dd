#include "batch/draft_rows.h"

#include <algorithm>

#include "base/check.h"

namespace rondo::batch {
namespace {

constexpr std::int32_t kNoRow = -1;

class DraftRows final {
 public:
  DraftRows(const Draft& draft, const DraftRoom& room, Segment& segment, Plan& plan)
      : draft_(draft), room_(room), segment_(segment), plan_(plan), root_position_(segment.end - 1) {
    plan_.node_rows.assign(draft.tokens.size(), kNoRow);
  }

  std::int32_t run() {
    add_chain();
    segment_.branch_begin = segment_.branch_end = static_cast<std::int32_t>(plan_.branches.size());
    for (std::int32_t node = 0; node < draft_.size(); ++node) {
      if (row(node) == kNoRow && has_parent_row(node)) add_branch(node);
    }
    return num_blocks_;
  }

 private:
  void add_chain();
  void add_branch(std::int32_t first_node);
  void share_rows_before(std::int32_t fork_row, std::int32_t table_begin);
  std::int32_t add_rows(std::int32_t node, std::int32_t position, std::int32_t end_position);
  bool grow_table(std::int32_t num_blocks);
  std::int32_t first_child(std::int32_t node) const;

  std::int32_t row(std::int32_t node) const { return plan_.node_rows[static_cast<std::size_t>(node)]; }
  std::int32_t parent(std::int32_t node) const { return draft_.parents[static_cast<std::size_t>(node)]; }
  std::int32_t parent_row(std::int32_t node) const {
    return parent(node) < 0 ? segment_.root_row() : row(parent(node));
  }
  bool has_parent_row(std::int32_t node) const { return parent_row(node) != kNoRow; }
  std::int32_t num_drafted() const { return plan_.num_rows() - segment_.root_row() - 1; }
  std::int32_t position(std::int32_t r) const { return plan_.positions[static_cast<std::size_t>(r)]; }

  const Draft& draft_;
  const DraftRoom& room_;
  Segment& segment_;
  Plan& plan_;
  std::int32_t root_position_;
  std::int32_t num_blocks_ = 0;
};

std::int32_t DraftRows::first_child(std::int32_t node) const {
  for (std::int32_t child = node + 1; child < draft_.size(); ++child) {
    if (parent(child) == node) return child;
  }
  return draft_.size();
}

bool DraftRows::grow_table(std::int32_t num_blocks) {
  if (num_blocks_ + num_blocks > room_.max_blocks) return false;
  num_blocks_ += num_blocks;
  for (; num_blocks > 0; --num_blocks) {
    const auto block = plan_.pool.allocate();
    RONDO_CHECK(block.has_value());
    plan_.tables.push_back(*block);
  }
  return true;
}

// The rows of `node`, its first child, that one's first child …, below `end_position`. Returns how many.
std::int32_t DraftRows::add_rows(std::int32_t node, std::int32_t position, std::int32_t end_position) {
  std::int32_t count = 0;
  for (; node < draft_.size() && position < end_position && num_drafted() < room_.max_rows; ++position) {
    plan_.node_rows[static_cast<std::size_t>(node)] = plan_.num_rows();
    plan_.tokens.push_back(draft_.tokens[static_cast<std::size_t>(node)]);
    plan_.positions.push_back(position);
    ++count;
    node = first_child(node);
  }
  return count;
}

void DraftRows::add_chain() {
  std::int32_t end = segment_.end + std::min(room_.max_depth, draft_.size());
  const std::int32_t missing = static_cast<std::int32_t>(kv::blocks_for(end)) - segment_.table_size;
  if (missing > 0 && !grow_table(missing)) end = segment_.table_size * kv::kBlockTokens;
  segment_.num_drafts = add_rows(first_child(-1), segment_.end, end);
  segment_.table_size = static_cast<std::int32_t>(plan_.tables.size()) - segment_.table_begin;
}

// Its table starts with the blocks below the root's. The root's own block is copied as far as it is
// committed; the root and the drafts up to the fork are computed in this step and stored to both tables.
void DraftRows::add_branch(std::int32_t first_node) {
  const std::int32_t fork = parent_row(first_node);
  const std::int32_t begin = position(fork) + 1;
  const std::int32_t end = std::min(segment_.end + room_.max_depth, begin + draft_.size() - first_node);
  if (begin >= end || num_drafted() >= room_.max_rows) return;
  const std::int32_t kept = root_position_ / kv::kBlockTokens;
  const auto table_begin = static_cast<std::int32_t>(plan_.tables.size());
  for (std::int32_t i = 0; i < kept; ++i) {
    plan_.tables.push_back(plan_.tables[static_cast<std::size_t>(segment_.table_begin + i)]);
  }
  if (!grow_table(static_cast<std::int32_t>(kv::blocks_for(end)) - kept)) {
    plan_.tables.resize(static_cast<std::size_t>(table_begin));
    return;
  }
  if (const std::int32_t num_slots = root_position_ % kv::kBlockTokens; num_slots > 0) {
    plan_.copies.push_back({.from = plan_.tables[static_cast<std::size_t>(segment_.table_begin + kept)],
                            .to = plan_.tables[static_cast<std::size_t>(table_begin + kept)],
                            .num_slots = num_slots});
  }
  share_rows_before(fork, table_begin);
  const std::int32_t first_row = plan_.num_rows();
  const std::int32_t num_rows = add_rows(first_node, begin, end);
  plan_.branches.push_back({.parent_row = fork,
                            .first_row = first_row,
                            .num_rows = num_rows,
                            .position = begin,
                            .table_begin = table_begin,
                            .table_size = static_cast<std::int32_t>(plan_.tables.size()) - table_begin,
                            .num_kept = kept});
  segment_.branch_end = static_cast<std::int32_t>(plan_.branches.size());
}

// Walks from the fork back to the root, piece by piece: each piece is a run of rows of one branch or the
// chain.
void DraftRows::share_rows_before(std::int32_t fork_row, std::int32_t table_begin) {
  std::int32_t last = fork_row;
  const auto branches = plan_.branches_of(segment_);
  while (last >= segment_.end_chain_row()) {
    const auto of = std::ranges::find_if(
        branches, [last](const Branch& b) { return last >= b.first_row && last < b.first_row + b.num_rows; });
    RONDO_CHECK(of != branches.end());
    plan_.stores.push_back({of->first_row, last - of->first_row + 1, of->position, table_begin});
    last = of->parent_row;
  }
  plan_.stores.push_back({segment_.root_row(), last - segment_.root_row() + 1, root_position_, table_begin});
}

}  // namespace

std::int32_t add_draft_rows(const Draft& draft, const DraftRoom& room, Segment& segment, Plan& plan) {
  return DraftRows(draft, room, segment, plan).run();
}

}  // namespace rondo::batch
