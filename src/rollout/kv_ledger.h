// KvLedger: where the KV of every request and prompt lies, and how full each place is. Integers only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/id.h"
#include "rollout/id_vector.h"
#include "rollout/load_index.h"
#include "rollout/request.h"
#include "rollout/request_heap.h"

namespace rondo::rollout {

enum class KvTier : std::uint8_t { kNone, kInstance, kHost, kDisk };

/// One place that can hold KV; `instance` is set for kInstance alone.
struct KvPlace {
  KvTier tier = KvTier::kNone;
  InstanceId instance;
  bool operator==(const KvPlace&) const = default;
};

/// An inference instance as the scheduler sees it.
struct InstanceSpec {
  InstanceId id;                 // small: instances are kept in an array
  std::int64_t num_blocks = 0;   // of its KV pool, at least 1
  std::int32_t max_running = 0;  // most requests in flight, at least 1
  bool operator==(const InstanceSpec&) const = default;
};

/// Parked KV that goes elsewhere: of one request, or of a prompt (`request` invalid), which goes from an
/// instance to the host, or is dropped.
struct SlotEviction {
  RequestSlot request;
  GroupSlot group;
  KvPlace from;
  KvPlace to;  // kNone: dropped, to be computed again
  bool operator==(const SlotEviction&) const = default;
};

/// Books KV blocks on instances and in the host and disk tiers.
///
/// On an instance a request has private blocks, and its group's full prompt blocks are counted once for all
/// samples there. KV in flight stays; parked KV (of a waiting request) may leave, the request that is
/// furthest from being served first. A prompt without a sample there stays until its room is needed, and then
/// has what room is left in the host tier, if samples have not started and it lies nowhere else. In host and
/// disk a request's KV is whole, prompt included. What leaves an instance is lost with it until a chunk that
/// started there later has ended: instances carry orders out in turn, so it has arrived by then. Does not
/// choose instances nor touch bytes; commands against the state are bugs and abort. All calls are O(log n)
/// but where said. One owner thread.
class KvLedger final {
 public:
  struct Limits {
    std::int64_t host_blocks = 0;
    std::int64_t disk_blocks = 0;
    std::int32_t min_kept_tokens = 0;  // KV of at most so many tokens is dropped, not moved
    bool bounds_running = true;        // an instance with max_running in flight has no room
  };
  /// Where a request's KV lies.
  struct Holding {
    KvPlace place;
    bool in_flight = false;
    GroupSlot group;
    bool has_run = false;
    std::int64_t blocks = 0;  // private ones on an instance; all in host and disk
    std::int32_t tokens = 0;  // computed ones, where there is a place; in flight, as of its start
    InstanceId sender = {};   // in host and disk: the instance that it left
    std::int64_t since = 0;   // the moment when it left its sender; in flight, of its start
  };

  explicit KvLedger(const Limits& limits) : limits_(limits) {}

  // Instances.
  void add_instance(const InstanceSpec& spec);
  /// Forgets it and all KV there, or under way from there; returns the requests that were in flight, in no
  /// order. O(what it held, and what host and disk hold).
  std::vector<RequestSlot> remove_instance(InstanceId id);
  bool has_instance(InstanceId id) const { return alive_.contains(id); }
  /// The next id after `id`, from the lowest again after the highest. Needs an instance.
  InstanceId next_instance(InstanceId id) const;
  std::int64_t num_instances() const { return std::ssize(alive_); }
  /// Blocks of the largest instance; 0 without one.
  std::int64_t largest_instance() const { return sizes_.empty() ? 0 : *sizes_.rbegin(); }
  /// Load is the number of requests in flight, room() the room.
  const LoadIndex& loads() const { return loads_; }
  std::int32_t load(InstanceId id) const;
  /// Blocks that are not in flight: free once everything parked has left. -1: it takes no request now.
  std::int64_t room(InstanceId id) const;
  /// Blocks that hold nothing.
  std::int64_t free_blocks(InstanceId id) const;

  // Groups and requests.
  void add_group(GroupSlot group, std::int32_t prompt_tokens);
  /// Forgets its prompt everywhere. None of its requests may hold KV.
  void remove_group(GroupSlot group);
  void add_request(RequestSlot request, GroupSlot group);
  const Holding& holding(RequestSlot request) const { return holdings_[request]; }
  bool has_prompt(GroupSlot group, InstanceId id) const { return find_copy(group, id) != nullptr; }
  /// Whether a sample of the group is in flight there.
  bool prompt_is_pinned(GroupSlot group, InstanceId id) const;
  /// Calls visit(InstanceId, bool computed) for each instance that has the group's prompt, in no order. Until
  /// chunk_ended() it may still be under way: siblings there will share it, but nothing can be moved.
  template <class Visit>
  void for_each_prompt_place(GroupSlot group, Visit visit) const {
    for (const PromptCopy& copy : prompts_[group].copies) visit(copy.instance, copy.computed);
  }
  /// Whether the host tier has the group's prompt.
  bool prompt_is_stored(GroupSlot group) const { return prompts_[group].stored_since.has_value(); }
  /// The full prompt blocks of the group.
  std::int64_t prompt_blocks(GroupSlot group) const { return prompts_[group].full_blocks; }

  // Changes.
  /// What must leave `id` to free `blocks` blocks beside what `keep` and its group have there, and what must
  /// then leave host and disk. room(id) must allow it. O(k log k) for k evictions.
  std::vector<SlotEviction> plan_evictions(InstanceId id, std::int64_t blocks, RequestSlot keep) const;
  /// How the KV of a request on disk gets to the host: last in the list, after prompts that are dropped there
  /// and requests that are served later and go to disk for it. Empty if that makes no room. O(k log k) for k
  /// moves.
  std::vector<SlotEviction> plan_return_to_host(RequestSlot request) const;
  void evict(const SlotEviction& eviction);
  /// The request goes in flight with so many private blocks; its KV elsewhere is free from now on, and the
  /// host's copy of the prompt with the last sample to start.
  void start(RequestSlot request, InstanceId id, std::int64_t private_blocks);
  /// A chunk of the request, still in flight, has ended: its group's prompt is computed where it runs, and
  /// what left there before its start has arrived.
  void chunk_ended(RequestSlot request);
  /// The request in flight waits again, with `tokens` computed in `private_blocks` blocks.
  void park(RequestSlot request, std::int32_t tokens, std::int64_t private_blocks, const Priority& priority);
  /// Its KV is gone, wherever it was.
  void release(RequestSlot request);
  /// A parked or stored request's place in the order of service has changed.
  void reprioritize(RequestSlot request, const Priority& priority);
  /// All KV is void. Nothing may be in flight. O(everything held).
  void drop_all();

  std::int64_t blocks_used(KvTier tier) const { return store(tier).used; }  // host or disk
  /// Aborts unless all counts agree and, if `reserved`, no instance is over its capacity. O(everything).
  void check_invariants(bool reserved) const;

 private:
  struct PromptCopy {
    InstanceId instance;
    std::int32_t in_flight = 0;  // samples of the group there
    std::int32_t parked = 0;
    std::int64_t idle_since = 0;  // key in Instance::idle while there is no sample
    bool computed = false;        // known to be
    bool idle() const { return in_flight + parked == 0; }
  };
  struct Prompt {
    std::int64_t full_blocks = 0;
    std::int64_t idle_blocks = 0;  // with the started block, which otherwise is some sample's own
    std::int32_t tokens = 0;       // in those
    std::int32_t unstarted = 0;    // samples that never ran
    std::vector<PromptCopy> copies;
    std::optional<std::int64_t> stored_since = {};  // key in stored_prompts_ while it is there
    InstanceId sender = {};                         // the instance that it then left
  };
  struct Instance {
    InstanceSpec spec;
    std::int64_t reserved = 0;        // private blocks in flight
    std::int64_t parked_blocks = 0;   // private blocks of parked requests
    std::int64_t pinned_prompts = 0;  // prompt blocks with a sample in flight
    std::int64_t other_prompts = 0;   // prompt blocks without one
    std::vector<RequestSlot> in_flight;
    RequestHeap<WorstFirst> parked;
    std::map<std::int64_t, GroupSlot> idle;  // prompts without a sample, oldest first
    std::int64_t settled = 0;                // the moment before which all that left has arrived
  };
  struct Store {
    std::int64_t limit = 0;
    std::int64_t used = 0;
    RequestHeap<WorstFirst> requests;
  };
  class EvictionPlan;

  const PromptCopy* find_copy(GroupSlot group, InstanceId id) const;
  void recount_prompt(GroupSlot group, InstanceId id, std::int32_t in_flight, std::int32_t parked);
  void count_prompt(const Prompt& prompt, const PromptCopy& copy, std::int64_t sign);
  void drop_prompt(GroupSlot group, InstanceId id);
  void store_prompt(GroupSlot group, InstanceId sender);
  void count_start(RequestSlot request);
  void drop_stored_prompt(GroupSlot group);
  bool is_under_way(InstanceId sender, std::int64_t since) const {
    return since > instances_[sender].settled;
  }
  void lose_stored(InstanceId sender);
  void refresh(InstanceId id);
  void take_out(RequestSlot request);
  void store_in(RequestSlot request, const KvPlace& place, const Priority& priority);
  Store& store(KvTier tier) { return tier == KvTier::kHost ? host_ : disk_; }
  const Store& store(KvTier tier) const { return tier == KvTier::kHost ? host_ : disk_; }
  void check_instance(InstanceId id, bool reserved) const;
  void check_prompts() const;

  Limits limits_;
  IdVector<InstanceId, Instance> instances_;
  std::set<InstanceId> alive_;
  std::multiset<std::int64_t> sizes_;  // of the instances, in blocks
  LoadIndex loads_;
  IdVector<GroupSlot, Prompt> prompts_;
  IdVector<RequestSlot, Holding> holdings_;
  HeapPlaces places_;  // of a request in its instance's in_flight or parked, or in its store
  Store host_{.limit = limits_.host_blocks, .used = 0, .requests = {}};
  Store disk_{.limit = limits_.disk_blocks, .used = 0, .requests = {}};
  std::map<std::int64_t, GroupSlot> stored_prompts_;  // in the host tier, oldest first
  // Counts starts, departures, and the keys of idle and stored prompts.
  std::int64_t moment_ = 0;
};

}  // namespace rondo::rollout
