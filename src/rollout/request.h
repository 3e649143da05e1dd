// What is asked of a rollout, and the dense indices under which the cores know it.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "base/id.h"

namespace rondo::rollout {

/// One response to generate.
struct SampleSpec {
  RequestId id;
  std::int32_t max_new_tokens = 0;  // at least 1
  std::int32_t true_tokens = 0;     // its length, for the oracle policies alone; 0: unknown
  bool operator==(const SampleSpec&) const = default;
};

/// A prompt and its samples. The first sample is the group's probe.
struct GroupSpec {
  GroupId id;
  std::int32_t prompt_tokens = 0;  // at least 1
  std::vector<SampleSpec> samples;
  bool is_learned = true;                       // its lengths go into the LengthPrior
  std::vector<std::int32_t> past_lengths = {};  // of earlier responses to the prompt, each at least 1
  bool operator==(const GroupSpec&) const = default;
};

/// Dense indices of live requests and groups; reused once the group has ended. The samples of a group are
/// neighbours, in order.
using RequestSlot = Id<struct RequestSlotTag, std::int32_t>;
using GroupSlot = Id<struct RolloutGroupSlotTag, std::int32_t>;

/// The place of a request in the order of service: the least is served first. `arrival` makes it total.
struct Priority {
  std::int64_t rank = 0;  // what the policy says
  std::int32_t generated = 0;
  std::int64_t arrival = 0;
  auto operator<=>(const Priority&) const = default;  // NOLINT(modernize-use-nullptr): of the generated code
};

}  // namespace rondo::rollout
