// Scheduler: which waiting request runs next, where, how far, and what must leave to make room.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "rollout/kv_ledger.h"
#include "rollout/length_prior.h"
#include "rollout/placement.h"
#include "rollout/policy.h"
#include "rollout/request.h"
#include "rollout/request_table.h"
#include "rollout/waiting_queue.h"

namespace rondo::rollout {

/// KV that must leave a place before an assignment's chunk starts; listed so that each step has room once
/// those before it are done.
struct Eviction {
  RequestId request;  // invalid: the kept prompt of `group` alone, dropped or taken to the host
  GroupId group;
  KvPlace from;
  KvPlace to;  // kNone: dropped
  bool operator==(const Eviction&) const = default;
};

/// "Run this request on that instance for at most max_tokens new tokens."
struct Assignment {
  RequestId request;
  GroupId group;
  std::int32_t generated = 0;        // tokens of the response so far
  std::int32_t max_tokens = 0;       // of this chunk
  std::int64_t reserved_blocks = 0;  // private ones; 0: the policy reserves nothing
  Placement placement;               // instance, and where its KV comes from
  std::vector<Eviction> evictions;   // in this order, before anything else
  std::int64_t version = -1;         // of the state it was planned for
  bool operator==(const Assignment&) const = default;
};

/// KV that changes places between host memory and disk, in this order, prompts that are dropped from host
/// memory among it; last, to host memory, that of the request it is all for.
struct Prefetch {
  std::vector<Eviction> moves;
  std::int64_t version = -1;  // of the state it was planned for
  bool operator==(const Prefetch&) const = default;
};

/// Why there is no assignment now.
enum class Idle {
  kNothingWaiting,
  kNoRoom,       // the next request waits until a chunk ends; nothing overtakes it
  kNoInstance,   // all instances have failed
  kNeverFits,    // nothing runs and still no instance has room: the request outgrew what is left
  kGoalReached,  // as many groups are complete as were wanted
};
/// "nothing waiting", "no room", …
std::string_view idle_name(Idle idle);

/// The one entry and exit of rollout work: groups come in, requests leave chunk by chunk for an instance and
/// return, until they are finished.
///
/// Decides order (the policy), placement and reservation. Does not generate, move KV, count time or talk to
/// instances: the owner carries an assignment out and reports what happened. It must not report events of an
/// instance from before its failure. Policies that divide responses reserve a chunk's peak, so engines never
/// preempt. A decision costs O(log n). One owner thread. Only add_group() and add_instance() can be refused,
/// and then nothing changed; a commit of anything but the plan of the present state, or an event that does
/// not fit the state, is a bug and aborts.
class Scheduler final {
 public:
  struct Config {
    static constexpr int kMeasured = -1;

    Policy policy = Policy::kSeerPlus;
    int chunk_tokens = 0;
    int max_spread = 32;
    int move_threshold = 512;  // kMeasured must be resolved before a Scheduler is made
    int starvation_period = 64;
    double over_issue = 2.0;
    double length_misses = 0.5;

    template <class V>
    void visit(V& v) {
      v.field(
          "policy", policy,
          "Order in which waiting responses are served. seer: a probe of each group first, then longest "
          "group first; seer_plus: longest remaining first by learned lengths; fifo, least_attained: "
          "controls without lengths; group_round_robin: whole groups in turn, undivided. For bench "
          "rollout alone, refused by train, eval and generate: oracle_lfs, stream_oracle: true lengths of an "
          "earlier run; partial: issue more, stop when enough are done (not strictly synchronous)");
      v.field("chunk_tokens", chunk_tokens,
              "New tokens per chunk; 0: a 16th of the response limit, between 64 and 2048", {.min = 0});
      v.field(
          "max_spread", max_spread,
          "Cached KV decides the instance while none runs more than so many responses more than another, nor "
          "a quarter of its own more",
          {.min = 0});
      v.field("move_threshold", move_threshold,
              "KV of more than so many tokens is moved rather than computed again; -1: as many as compute "
              "sooner than they move, measured when the engines start",
              {.min = kMeasured});
      v.field("starvation_period", starvation_period,
              "One decision in so many serves the response that has waited longest", {.min = 2});
      v.field("over_issue", over_issue, "partial: groups issued per group wanted", {.min = 1});
      v.field(
          "length_misses", length_misses,
          "seer_plus: of the responses that run at a time, about so many may end later than is allowed for",
          {.above = 0});
    }
    Result<void> validate() const;
  };

  /// What the machine allows.
  struct Limits {
    std::int64_t host_blocks = 0;  // of the host tier; 0: none
    std::int64_t disk_blocks = 0;
    std::int32_t draft_room_tokens = 0;  // KV positions beside the known tokens that a step may write
  };

  /// Counters since the scheduler was made.
  struct Stats {
    std::int64_t assignments = 0;
    std::int64_t moves = 0;  // assignments whose KV is moved
    std::int64_t moved_tokens = 0;
    std::int64_t recomputed_tokens = 0;
    std::int64_t evicted_requests = 0;  // KV of requests that left an instance for want of room
    std::int64_t prefetched_requests = 0;
    std::int64_t overdue = 0;  // assignments by the starvation rule
    std::int64_t finished_requests = 0;
    std::int64_t finished_groups = 0;
  };

  /// `prior` is what an earlier run learned. kInvalidArgument says what to change.
  static Result<std::unique_ptr<Scheduler>> create(const Config& config, const Limits& limits,
                                                   const LengthPrior& prior = {});

  /// A new instance, or one that comes back after its failure. Refused: an id in use, no blocks, no places.
  Result<void> add_instance(const InstanceSpec& spec);
  /// Its chunks wait again with the tokens of their last chunk's end; the KV there is lost, and that which
  /// left there after the start of every chunk that has ended there. Returns the requests that were in
  /// flight.
  std::vector<RequestId> instance_failed(InstanceId id);

  /// Queues a group. Refused: malformed, ids in use, lengths that the policy needs and does not get, or a
  /// response that at full length fits no instance.
  Result<void> add_group(const GroupSpec& spec);
  /// How many groups to add so that `wanted` are soon complete: more than that for `partial` alone.
  std::int64_t groups_to_issue(std::int64_t wanted) const;
  /// `partial`: stop once this many groups are complete. 0: all.
  void set_goal(std::int64_t num_groups) { goal_ = num_groups; }

  /// The next assignment, or why there is none. Changes nothing.
  tl::expected<Assignment, Idle> plan() const;
  void commit(const Assignment& assignment);

  /// The chunk ended with `new_tokens` more and the response goes on. At least 1.
  void chunk_done(RequestId request, std::int32_t new_tokens);
  /// The response ended, `total_tokens` long, at least 1.
  void finished(RequestId request, std::int32_t total_tokens);
  /// All KV is void, and the lengths of the groups finished since the last version are learned. Nothing may
  /// be in flight.
  void new_policy_version();
  /// Forgets everything unfinished, waiting or in flight; returns it. For `partial`, and for an end in
  /// disorder; the owner cancels what is in flight.
  std::vector<RequestId> abandon();

  /// How the KV of the first request that is on disk, among the `count` next ones, gets to host memory: where
  /// that is full, what is served later than it goes to disk instead. nullopt: nothing to be moved, or no
  /// room.
  std::optional<Prefetch> plan_prefetch(std::int32_t count) const;
  void commit(const Prefetch& prefetch);
  /// Whether the host tier has the prompt of an unfinished group.
  bool prompt_is_stored(GroupId group) const;
  /// Where a request's KV lies; of one in flight, where it runs.
  KvPlace kv_place(RequestId request) const;
  std::int32_t num_waiting() const { return queue_.size(); }
  std::int32_t num_in_flight() const { return num_in_flight_; }
  std::int32_t num_in_flight(InstanceId id) const { return ledger_.load(id); }
  const RequestTable& requests() const { return table_; }
  const KvLedger& ledger() const { return ledger_; }
  const PolicyRules& rules() const { return *rules_; }
  const LengthPrior& prior() const { return prior_; }
  /// What an earlier run learned, instead of what is known now. Before the first group.
  void set_prior(const LengthPrior& prior);
  const Stats& stats() const { return stats_; }

  /// Aborts if the state contradicts itself or, under a policy that reserves, an instance is over its
  /// capacity. For tests; O(everything).
  void check_invariants() const;

 private:
  struct FinishedLength {
    std::int32_t tokens = 0;
    std::int32_t max_new_tokens = 0;
  };

  Scheduler(const Config& config, const Limits& limits, const LengthPrior& prior);
  bool reserves() const { return rules_->dispatch == Dispatch::kChunks; }
  bool overdue_turn() const;
  RequestSlot slot_of(RequestId id) const;
  std::int64_t private_blocks(const Request& request, std::int64_t positions) const;
  Result<void> check_group(const GroupSpec& spec) const;
  tl::expected<Assignment, Idle> plan_chunk(RequestSlot slot) const;
  tl::expected<Assignment, Idle> plan_whole(RequestSlot slot) const;
  std::optional<InstanceId> instance_for_group(const Group& group) const;
  std::int64_t true_blocks(const Request& request) const;
  Idle no_room() const;
  Assignment describe(RequestSlot slot, const Placement& placement) const;
  std::vector<Eviction> describe(std::span<const SlotEviction> evictions) const;
  void apply(const Eviction& eviction);
  void enqueue(RequestSlot slot);
  Priority priority_of(const Request& request) const;
  bool learns_lengths() const { return rules_->learns_lengths && prior_.weight > 0.0; }
  bool share_misses(std::int64_t num_running);
  void count_running();
  void revise_forecasts();
  void revise_forecast(GroupSlot slot);
  void set_forecast(GroupSlot slot, const LengthForecast& forecast);
  LengthForecast forecast_of(GroupSlot slot) const;
  void reprioritize(GroupSlot slot);
  void remove_group(GroupSlot slot);
  void check_requests() const;

  Config config_;
  Limits limits_;
  const PolicyRules* rules_;
  PlacementRules placement_rules_;
  RequestTable table_;
  WaitingQueue queue_;
  KvLedger ledger_;
  LengthPrior prior_;
  // Of this policy version: an order of their own, so that what is learned does not depend on who ended
  // first.
  std::map<GroupId, std::vector<FinishedLength>> finished_lengths_;
  Stats stats_;
  std::int64_t version_ = 0;  // counts changes, so that a stale plan is noticed
  std::int64_t goal_ = 0;
  std::int64_t num_requests_ = 0;  // of this policy version, finished ones among them
  RankContext rank_context_;
  std::int64_t since_count_ = 0;      // assignments since its share was last set by what runs
  bool has_counted_running_ = false;  // in this policy version
  std::int32_t num_in_flight_ = 0;
  InstanceId last_in_turn_;
};

/// The chunk length for responses of at most max_new_tokens: `configured`, else a 16th, between 64 and 2048.
std::int32_t chunk_length(std::int32_t configured, std::int32_t max_new_tokens);

}  // namespace rondo::rollout
