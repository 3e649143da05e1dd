// DraftClient: one instance's suffix trees of the groups it serves, and the drafts from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/id.h"
#include "base/status.h"
#include "batch/draft_transport.h"
#include "batch/drafts.h"
#include "batch/sequence.h"
#include "suffix/draft.h"
#include "suffix/suffix_tree.h"

namespace rondo::batch {

/// A sequence that wants a draft behind the last token of its response so far.
struct DraftQuery {
  Slot slot;
  GroupId group;
  RequestId request;
  std::span<const Token> response;
  suffix::DraftArgs args = {};
};

/// Keeps a suffix tree per registered group: of its prompt, of the instance's own responses, which are seen
/// at once, and of all other instances' responses as far as the draft server has told. Drafts from these.
///
/// Own tokens go to the server in batches, others' come from it, both in sync() alone; drafting is local and
/// allocates nothing once warm. Whatever the transport does, a tree holds true prefixes of responses only: a
/// delta that leaves a gap, contradicts what is known, or belongs to another policy version is dropped.
/// The two agree about everything by counts, so a response may come from elsewhere with tokens that are known
/// here in part, or be generated a second time.
///
/// Does not verify drafts, choose their length, or tell when a group is complete. Memory that is used up
/// means that trees stop growing, and so do the responses that the server sees from here. One owner thread.
/// No call fails.
class DraftClient final {
 public:
  struct Config {
    std::int32_t append_batch = 16;        // unsent tokens of a response at which it is sent
    std::int32_t fetch_period = 16;        // engine steps between two syncs
    std::int32_t resend_syncs = 8;         // syncs without an answer after which a message counts as lost
    std::int32_t max_fetch_tokens = 4096;  // most tokens taken from the server in one sync
    std::int32_t group_ttl_s = 600;        // the server forgets a group that no client asks for
    std::size_t max_bytes = std::size_t{2} << 30;  // trees of this size together take at most 64 tokens more
    suffix::SuffixTree::Config tree = {};          // of each group

    Result<void> validate() const;
  };

  /// Counters since the client was made.
  struct Stats {
    std::int64_t queries = 0;  // sequences that a draft was wanted for
    std::int64_t hits = 0;     // of these, sequences that got one
    std::int64_t drafted_tokens = 0;
    std::int64_t sent_bytes = 0;
    std::int64_t received_bytes = 0;
    std::int64_t fetched_tokens = 0;   // others' tokens that went into trees
    std::int64_t contradictions = 0;   // times that two sources had different tokens for one response
    std::int64_t refused_appends = 0;  // times that a tree could not take all tokens for want of memory

    double draft_hit() const {
      return queries == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(queries);
    }
  };

  /// Borrows the transport.
  static Result<std::unique_ptr<DraftClient>> create(const Config& config, DraftTransport& transport);

  /// Starts a tree for the group with its prompt in it, so that a response can be continued with what stands
  /// in the prompt. The prompt is a sequence of its own: it is appended once, not once for each response, and
  /// not sent to the server. Known groups stay as they are.
  /// `past` are responses to it from elsewhere, e.g. from earlier epochs: sequences like the prompt.
  void register_group(GroupId group, std::span<const Token> prompt,
                      std::span<const std::vector<Token>> past = {});
  bool has_group(GroupId group) const { return groups_.contains(group); }
  void forget_group(GroupId group);
  /// New weights: forgets all groups, and messages of other versions are dropped from now on.
  void drop_all(PolicyVersion version);

  /// Takes what is new of a response that this instance generates or has received: all of its tokens so far,
  /// which within a policy version only grow. They are part of the next draft. O(new tokens). Groups that are
  /// not registered are ignored.
  void own_tokens(GroupId group, RequestId request, std::span<const Token> response);

  /// Called after each engine step: every fetch_period-th calls sync().
  void end_step();
  /// Takes in what has come, sends responses with append_batch unsent tokens or none new since the last sync,
  /// and asks for what is new elsewhere. Does not wait: with a transport that answers later, the answers are
  /// taken in by a later sync.
  void sync();

  /// Adds the best draft for each query to `out`, which has none for these slots; nothing where nothing
  /// matches or the group is not registered. Each has at most args.max_tokens tokens. No allocation once
  /// `out` is warm. O(draft) per query, plus O(max_depth) for a response that is short or not known to its
  /// end.
  void batch_speculate(std::span<const DraftQuery> queries, Drafts& out);

  /// The tokens of a response in the local tree; empty if there are none. Valid until the next change.
  std::span<const Token> tokens(GroupId group, RequestId request) const;
  std::size_t num_groups() const { return groups_.size(); }
  /// Of all trees.
  std::size_t memory_bytes() const { return memory_bytes_; }
  const Stats& stats() const { return stats_; }
  /// Aborts unless counts, trees and sums agree. For tests; O(memory).
  void check_invariants() const;

 private:
  // A response. sent and acked speak of the server, and hold as far as is known here.
  struct Response {
    RequestId request;
    std::int32_t known = 0;   // tokens in the tree
    std::int32_t own = 0;     // of these, tokens that own_tokens() has given or confirmed
    std::int32_t acked = 0;   // tokens that the server has
    std::int32_t sent = 0;    // tokens that were sent, or need not be; at least acked
    std::int32_t silent = 0;  // syncs since the server last told of it while sent > acked
    bool grew = false;        // own tokens came since the last sync
    bool disputed = false;    // the server has other tokens: neither sent nor fetched
  };
  struct Group {
    explicit Group(const suffix::SuffixTree::Config& config) : tree(config) {}
    suffix::SuffixTree tree;
    std::vector<Token> prompt_tail;   // its last max_depth tokens
    std::vector<Response> responses;  // by ascending request
    bool registered = false;          // at the server, as far as is known
    bool full = false;                // the tree did not take all it was given
  };

  DraftClient(const Config& config, DraftTransport& transport);

  Group* find_group(GroupId group);
  static Response* find_response(Group& group, RequestId request);
  static Response& get_or_add(Group& group, RequestId request);
  std::int32_t append(Group& group, RequestId request, std::span<const Token> tokens);
  void start_over(Group& group, Response& response);

  void receive();
  void apply(const DraftAck& ack);
  void apply(const DraftFetchReply& reply);
  void apply(const DraftDelta& delta);
  void lose_registration(GroupId group);

  void register_groups();
  void send_updates();
  void add_update(GroupId id, const Group& group, Response& response);
  void send_fetch();
  void add_to_fetch(GroupId id, const Group& group);

  suffix::Match match(const Group& group, const DraftQuery& query) const;

  Config config_;
  DraftTransport& transport_;
  PolicyVersion version_;
  std::map<GroupId, Group> groups_;
  std::size_t memory_bytes_ = 0;
  Stats stats_;

  std::int32_t steps_ = 0;         // since the last sync
  GroupId first_to_fetch_;         // the next fetch starts with it, or the next one after it
  std::int64_t fetch_number_ = 0;  // of the last fetch
  bool fetch_pending_ = false;     // it has not been answered
  std::int32_t fetch_silent_ = 0;  // syncs since
  DraftUpdate update_;             // these are reused
  DraftFetch fetch_;
  DraftReplies replies_;
};

}  // namespace rondo::batch
