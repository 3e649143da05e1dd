// The ordered inputs of the deciding cores as lines of text, and their replay.
//
//   line  = time " " kind *( " " integer ) "\n"
//   time  = integer            ; nanoseconds of the recorder's clock; no core reads it
//   kind  = "instance" | "failed" | "group" | "goal" | "assign" | "chunk_done" | "finished"
//         | "prefetch" | "version" | "prior" | "abandon" | "draft_plan" | "draft_seen"
//
// The integers of a kind are the fields of its struct below, in order; a list is its length and its items; an
// enum is its position, a floating-point number its 64 bits as an integer. "assign", "prefetch" and
// "draft_plan" hold what was decided, so that a replay can compare.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "rollout/draft_length.h"
#include "rollout/scheduler.h"

namespace rondo::rollout {

struct InstanceAdded {
  InstanceSpec spec;
  bool operator==(const InstanceAdded&) const = default;
};
struct InstanceFailed {
  InstanceId instance;
  bool operator==(const InstanceFailed&) const = default;
};
struct GroupAdded {
  GroupSpec spec;
  bool operator==(const GroupAdded&) const = default;
};
struct GoalSet {
  std::int64_t num_groups = 0;
  bool operator==(const GoalSet&) const = default;
};
struct Assigned {
  Assignment assignment;
  bool operator==(const Assigned&) const = default;
};
struct ChunkDone {
  RequestId request;
  std::int32_t new_tokens = 0;
  bool operator==(const ChunkDone&) const = default;
};
struct RequestFinished {
  RequestId request;
  std::int32_t total_tokens = 0;
  bool operator==(const RequestFinished&) const = default;
};
struct Prefetched {
  std::int32_t count = 0;  // of the requests looked at
  Prefetch prefetch;
  bool operator==(const Prefetched&) const = default;
};
struct VersionChanged {
  bool operator==(const VersionChanged&) const = default;
};
struct PriorSet {
  LengthPrior prior;
  bool operator==(const PriorSet&) const = default;
};
struct Abandoned {
  bool operator==(const Abandoned&) const = default;
};
struct DraftPlanned {
  DraftLoad load;
  DraftLengths lengths;
  bool operator==(const DraftPlanned&) const = default;
};
struct DraftSeen {
  DraftClass draft_class;
  std::int32_t drafted = 0;
  std::int32_t accepted = 0;
  bool operator==(const DraftSeen&) const = default;
};

using RecordedInput =
    std::variant<InstanceAdded, InstanceFailed, GroupAdded, GoalSet, Assigned, ChunkDone, RequestFinished,
                 Prefetched, VersionChanged, PriorSet, Abandoned, DraftPlanned, DraftSeen>;

struct TimedInput {
  std::int64_t time_ns = 0;
  RecordedInput input;
  bool operator==(const TimedInput&) const = default;
};

/// One line of a log, with its end.
std::string input_line(const TimedInput& input);
/// A log. A last line without its end was cut short when its writer ended in disorder, and is left out.
/// kDataLoss, with the number of the line, for any other line that is none.
Result<std::vector<TimedInput>> parse_input_log(std::string_view text);

/// The cores that a log is replayed on, made as they were when it was recorded. `drafts` may be null if the
/// log has no drafts.
struct ReplayCores {
  Scheduler* scheduler = nullptr;
  DraftLengthPlanner* drafts = nullptr;
};

/// Feeds the inputs to the cores and lets them decide anew. kInvalidArgument, with the number of the input,
/// if one decides otherwise than the log says, or the log asks for what the state does not allow; the cores
/// have then seen the inputs before it.
Result<void> replay(std::span<const TimedInput> inputs, const ReplayCores& cores);

}  // namespace rondo::rollout
