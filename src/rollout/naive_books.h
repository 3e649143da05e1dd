// NaiveBooks: where all KV lies, from a scheduler's assignments alone, in the plainest way; for tests.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "rollout/scheduler.h"

namespace rondo::rollout {

/// Carries assignments out on maps keyed by ids and sums everything up anew after each step.
///
/// Shares no code with KvLedger but the size of a prefix. A step that names KV which is not there, or fills a
/// place over its capacity even for a moment, is reported through GoogleTest. O(requests) per call.
class NaiveBooks final {
 public:
  explicit NaiveBooks(const Scheduler::Limits& limits) : limits_(limits) {}

  void add_instance(const InstanceSpec& spec) { instances_[spec.id] = spec; }
  /// Returns how many requests and prompts lose KV that was on its way from there to host or disk.
  int fail_instance(InstanceId id);
  void add_group(const GroupSpec& spec);

  void assign(const Assignment& assignment);
  void chunk_done(RequestId id, std::int32_t new_tokens);
  void finished(RequestId id, std::int32_t total_tokens);
  void prefetch(const Prefetch& prefetch);
  void drop_all();

  const KvPlace& place(RequestId id) const { return requests_.at(id).place; }
  bool prompt_is_stored(GroupId id) const { return prompts_.at(id).stored; }

 private:
  // Of what host or disk have. It is under way until a chunk ends on `from` that was assigned with it, or
  // later.
  struct Departure {
    InstanceId from;  // invalid: it has arrived
    std::int64_t assignment = 0;
  };
  struct Record {
    GroupId group;
    KvPlace place;
    bool in_flight = false;
    std::int64_t reserved = 0;
    std::int32_t generated = 0;
    std::int64_t assignment = 0;  // its last one
    Departure departure = {};
  };
  struct Prompt {
    std::int32_t tokens = 0;
    int unfinished = 0;
    std::set<RequestId> started = {};
    int num_samples = 0;
    std::set<InstanceId> copies;
    std::set<InstanceId> computed;  // of these, where a sample has run
    bool stored = false;            // in the host tier
    Departure departure = {};
  };

  void evict(const Eviction& eviction);
  void evict_prompt(const Eviction& eviction);
  void chunk_ended(const Record& ended);
  void check_source(const Assignment& assignment) const;
  void check_room() const;
  bool present(GroupId group, InstanceId id) const;
  std::int64_t private_blocks(const Record& record) const;
  std::int64_t used(InstanceId id) const;
  std::int64_t stored(KvTier tier) const;

  Scheduler::Limits limits_;
  std::map<InstanceId, InstanceSpec> instances_;
  std::map<RequestId, Record> requests_;
  std::map<GroupId, Prompt> prompts_;
  std::int64_t num_assignments_ = 0;
};

}  // namespace rondo::rollout
