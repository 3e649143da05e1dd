// DraftServer: the response tokens of all running groups, for the draft clients of all instances.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/id.h"
#include "base/status.h"
#include "batch/draft_transport.h"

namespace rondo::rollout {

/// Keeps, per registered group, the tokens of each response as a log, and tells a client what it lacks.
///
/// It holds logs, not trees: a tree is a function of its sequences (suffix::SuffixTree), so clients build
/// equal trees from equal logs, and a delta of a log is the shortest delta of a tree. A log only grows, by
/// tokens that continue it; what is known already, leaves a gap or contradicts it changes nothing and is
/// answered so. A group that nobody has registered or fetched for its time to live is gone.
///
/// Does not know which responses are alive, whether tokens are right, or who its clients are. Any thread may
/// call anything: groups are spread over shards, each with a mutex that is never held with another one.
/// Errors are outcomes; none of them changes the state.
class DraftServer final {
 public:
  struct Config {
    std::int32_t num_shards = 8;
    std::size_t max_bytes = std::size_t{1} << 30;  // bound on memory_bytes(); beyond, new tokens are refused

    Result<void> validate() const;
  };

  static Result<std::unique_ptr<DraftServer>> create(const Config& config, const Clock& clock);

  struct Appended {
    batch::DraftOutcome outcome = batch::DraftOutcome::kTaken;
    std::int32_t count = 0;  // tokens of the response that are here now; 0 if the group is unknown
    bool operator==(const Appended&) const = default;
  };

  /// Appends `tokens`, which stand in the response from place `previous_count` (>= 0) on.
  Appended update_cst(PolicyVersion version, const batch::DraftDelta& delta);

  /// Adds the group unless it is here; it lives until `ttl_ns` after the last such call or fetch. False: the
  /// version is another one, or memory is used up.
  bool register_group(PolicyVersion version, GroupId group, std::int64_t ttl_ns);

  /// Fills `reply` with what the client lacks of each group, in the order of groups and requests, until
  /// request.max_tokens are in it; and names the responses that the client wrongly takes for known here, as
  /// it may after a group expired and was registered again.
  void fetch_cst(const batch::DraftFetch& request, batch::DraftFetchReply& reply);

  /// The group is complete. Late updates of it are answered "unknown".
  void remove_group(GroupId group);
  /// A new policy: forgets everything, and from now on refuses what speaks of another version. Before the
  /// first call the version is PolicyVersion().
  void clear(PolicyVersion version);

  /// The response as far as it is known here; empty if it is not.
  std::vector<Token> tokens(GroupId group, RequestId request) const;
  std::size_t num_groups() const;
  std::size_t memory_bytes() const { return bytes_.load(std::memory_order_relaxed); }

  /// Aborts unless all of the above is consistent. No other thread may call meanwhile. O(memory).
  void check_invariants() const;

 private:
  struct Group {
    std::map<RequestId, std::vector<Token>> responses;
    std::int64_t ttl_ns = 0;
    std::int64_t expires_ns = 0;
    std::size_t bytes = 0;
  };
  struct Shard {
    mutable std::mutex mutex;
    PolicyVersion version;
    std::unordered_map<GroupId, Group> groups;
    std::set<std::pair<std::int64_t, GroupId>> by_expiry;  // of all groups
  };

  DraftServer(const Config& config, const Clock& clock);
  Shard& shard_of(GroupId group) const;

  // These are called with the shard's mutex held.
  Appended append(Shard& shard, const batch::DraftDelta& delta);
  Appended extend(Group& group, const batch::DraftDelta& delta);
  bool add_group(Shard& shard, GroupId group);
  void renew(Shard& shard, GroupId id, Group& group);
  void erase(Shard& shard, GroupId group);
  std::size_t erase_expired(Shard& shard);

  std::size_t erase_expired_everywhere();
  bool reserve(std::size_t bytes);
  void fetch_group(const batch::DraftFetch& request, const batch::DraftFetch::Group& wanted,
                   batch::DraftFetchReply& reply);
  static void find_gaps(const Group& group, GroupId id, std::span<const batch::DraftCount> counts,
                        batch::DraftFetchReply& reply);

  std::size_t max_bytes_;
  const Clock& clock_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::atomic<std::size_t> bytes_ = 0;  // of all groups
};

}  // namespace rondo::rollout
