// DraftTransport: how a draft client and the draft server exchange response tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/id.h"

namespace rondo::batch {

/// Tokens of one response, from its `previous_count`-th on.
struct DraftDelta {
  GroupId group;
  RequestId request;
  std::int32_t previous_count = 0;
  std::span<const Token> tokens;
};

/// A list of deltas that owns their tokens. A plain value; keeps its memory when cleared.
class DraftDeltas final {
 public:
  void clear();
  /// Copies the delta's tokens.
  void add(const DraftDelta& delta);

  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  std::size_t num_tokens() const { return tokens_.size(); }
  /// Valid until the next change.
  DraftDelta operator[](std::size_t index) const;
  /// Size as plain integers.
  std::int64_t payload_bytes() const;

 private:
  struct Entry {
    GroupId group;
    RequestId request;
    std::int32_t previous_count = 0;
    std::int32_t num_tokens = 0;
    std::size_t begin = 0;  // in tokens_
  };
  std::vector<Entry> entries_;
  std::vector<Token> tokens_;
};

/// "These responses have grown." Every message names the policy version whose tokens it speaks of.
struct DraftUpdate {
  PolicyVersion version;
  DraftDeltas deltas = {};
};

/// What became of one delta.
enum class DraftOutcome {
  kTaken,          // the server has its tokens, whether new or known before
  kGap,            // tokens before it are missing: resend from the count
  kContradiction,  // the server has other tokens there, and keeps them
  kUnknownGroup,   // not registered, or expired
  kOtherVersion,   // the server is at another policy version
  kNoMemory,       // nothing was taken
};

struct DraftAck {
  GroupId group;
  RequestId request;
  DraftOutcome outcome = DraftOutcome::kTaken;
  std::int32_t count = 0;  // tokens of the response that the server has
};

/// One ack per delta of an update, in order.
struct DraftUpdateReply {
  PolicyVersion version;
  std::vector<DraftAck> acks = {};
};

/// How many tokens of a response the client has, and how many it believes that the server has.
struct DraftCount {
  RequestId request;
  std::int32_t count = 0;
  std::int32_t acked = 0;
};

/// "What do these groups have that I lack?" For each group the counts of the responses that the client knows;
/// it has none of the others.
struct DraftFetch {
  struct Group {
    GroupId group;
    std::size_t begin = 0;  // its counts are counts[begin, begin + size), by ascending request
    std::size_t size = 0;
  };
  PolicyVersion version;
  std::int64_t number = 0;      // comes back in the reply
  std::int32_t max_tokens = 0;  // most tokens of the reply; served in the order of groups
  std::vector<Group> groups = {};
  std::vector<DraftCount> counts = {};

  void clear();
  std::span<const DraftCount> counts_of(const Group& group) const;
  std::int64_t payload_bytes() const;
};

struct DraftFetchReply {
  PolicyVersion version;
  std::int64_t number = 0;
  DraftDeltas deltas = {};
  std::vector<GroupId> unknown_groups = {};  // of those asked for: not registered, or expired
  std::vector<DraftAck> gaps = {};           // responses of which the server has less than believed
};

/// Everything that has come for one client.
struct DraftReplies {
  std::vector<DraftUpdateReply> updates;
  std::vector<DraftFetchReply> fetches;

  void clear();
};

/// Carries the messages of one client to the server, and the replies back.
///
/// A post returns at once and may fail silently: messages and replies may be lost, late, repeated or out of
/// order, but are never altered. Users must make no more of it than speed. Only the client's owner thread
/// calls.
class DraftTransport {
 public:
  virtual ~DraftTransport() = default;
  virtual void update(const DraftUpdate& message) = 0;
  virtual void fetch(const DraftFetch& message) = 0;
  /// The server is to keep the group for `ttl_ns` after this message and after each fetch of it.
  virtual void register_group(PolicyVersion version, GroupId group, std::int64_t ttl_ns) = 0;
  /// Adds the replies that have come since the last call to `replies`. Does not wait.
  virtual void receive(DraftReplies& replies) = 0;
};

}  // namespace rondo::batch
