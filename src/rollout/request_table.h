// RequestTable: all unfinished groups and requests, as plain records under dense indices.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "rollout/id_vector.h"
#include "rollout/length_prior.h"
#include "rollout/request.h"

namespace rondo::rollout {

enum class RequestState : std::uint8_t { kUnused, kWaiting, kInFlight, kFinished };

/// A request keeps its record, as kFinished, until its group is complete.
struct Request {
  RequestId id;
  GroupSlot group;
  RequestState state = RequestState::kUnused;
  bool is_probe = false;
  std::int32_t max_new_tokens = 0;
  std::int32_t true_tokens = 0;  // 0: unknown
  std::int32_t generated = 0;    // as of its last finished chunk
  std::int32_t chunk = 0;        // while in flight: new tokens it may generate
  Priority priority;             // valid while it waits
};

struct Group {
  GroupId id;
  RequestSlot first;  // its samples are first, first + 1, …
  std::int32_t num_samples = 0;
  std::int32_t prompt_tokens = 0;
  bool is_learned = true;
  std::int32_t num_finished = 0;
  std::int32_t longest_finished = 0;  // tokens; 0: none has finished
  std::int32_t longest_true = 0;      // tokens; 0: unknown
  std::int32_t longest_past = 0;      // tokens, of an earlier epoch; 0: unknown
  std::vector<std::int32_t> past_lengths = {};
  LengthForecast forecast = {};   // of its samples, from a LengthPrior
  std::int64_t upper_tokens = 0;  // what is allowed for at first, by RankContext::upper_share
  InstanceId instance = {};       // of a policy that keeps groups together; invalid: not placed yet
};

/// The slots first, first + 1, …, count of them, for a range-based for.
class SlotRange final {
 public:
  class Iterator final {
   public:
    explicit Iterator(std::int32_t at) : at_(at) {}
    RequestSlot operator*() const { return RequestSlot(at_); }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    std::int32_t at_;
  };

  SlotRange(RequestSlot first, std::int32_t count) : begin_(first.value()), end_(first.value() + count) {}
  Iterator begin() const { return begin_; }
  Iterator end() const { return end_; }

 private:
  Iterator begin_;
  Iterator end_;
};

/// Keeps the records and their indices.
///
/// Does not decide, count blocks or keep an order. Only add() can be refused, and then nothing changed. A
/// reference is valid until the next add(). One owner thread.
class RequestTable final {
 public:
  /// Adds a group, all of its requests waiting. kInvalidArgument if it is malformed or an id is taken.
  Result<GroupSlot> add(const GroupSpec& spec);
  /// Forgets a group and all its requests; the slots are reused.
  void remove(GroupSlot slot);

  Request& operator[](RequestSlot slot) { return requests_[slot]; }
  const Request& operator[](RequestSlot slot) const { return requests_[slot]; }
  Group& operator[](GroupSlot slot) { return groups_[slot]; }
  const Group& operator[](GroupSlot slot) const { return groups_[slot]; }
  const Group& group_of(RequestSlot slot) const { return groups_[requests_[slot].group]; }
  std::optional<RequestSlot> find(RequestId id) const;
  std::optional<GroupSlot> find(GroupId id) const;

  /// The slots of a group's requests, in order of sample.
  SlotRange members(GroupSlot slot) const {
    return SlotRange(groups_[slot].first, groups_[slot].num_samples);
  }
  /// All slots there have ever been; unused ones are kUnused.
  std::int32_t num_slots() const { return static_cast<std::int32_t>(requests_.size()); }
  std::int64_t num_groups() const { return std::ssize(group_by_id_); }
  /// In no order.
  const std::unordered_map<GroupId, GroupSlot>& groups() const { return group_by_id_; }

  /// Aborts unless the indices and the counts agree. O(everything).
  void check_invariants() const;

 private:
  Result<void> check(const GroupSpec& spec) const;
  RequestSlot take_slots(std::int32_t count);

  IdVector<RequestSlot, Request> requests_;
  IdVector<GroupSlot, Group> groups_;
  std::unordered_map<RequestId, RequestSlot> request_by_id_;
  std::unordered_map<GroupId, GroupSlot> group_by_id_;
  std::vector<GroupSlot> free_groups_;
  std::map<std::int32_t, std::vector<RequestSlot>> free_runs_;  // first slots of free runs, by their length
  std::int64_t next_arrival_ = 0;
};

}  // namespace rondo::rollout
