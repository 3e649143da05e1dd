// Drafting: one instance's side of grouped speculative decoding.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/id.h"
#include "batch/draft_client.h"
#include "batch/draft_transport.h"
#include "batch/drafts.h"
#include "batch/planner.h"
#include "engine/engine.h"
#include "rollout/draft_length.h"
#include "rollout/response_history.h"

namespace rondo::engine {

/// Proposes drafts for an engine's sequences, as long as they pay, from the suffix trees of their groups, and
/// learns from how they fare.
///
/// Does not verify: the engine does. What it proposes changes speed alone. One owner thread, the engine's.
class Drafting final {
 public:
  struct Config {
    rollout::DraftLengthPlanner::Config length;
    batch::DraftClient::Config client;
    double min_prob = 0.1;
  };

  /// Counters since it was made.
  struct Stats {
    std::int64_t sequence_steps = 0;  // decoding sequences, each counted in each step
    std::int64_t wanted_tokens = 0;   // sum of the draft lengths chosen for them
    std::int64_t queries = 0;         // of the sequence steps, those with a length above 0
    std::int64_t hits = 0;            // of these, those that got a draft
  };

  /// Borrows transport and history; the latter may be null, and is read while the engine works.
  static Result<std::unique_ptr<Drafting>> create(const Config& config, const rollout::StepCost& cost,
                                                  batch::DraftTransport& transport,
                                                  const rollout::ResponseHistory* history = nullptr);

  /// A chunk of this request starts here.
  void begin(RequestId request, GroupId group, const rollout::DraftClass& draft_class);
  /// As Drafter.
  void propose(std::span<const DraftContext> contexts, batch::Drafts& drafts);
  /// After each step: how its drafts fared.
  void observe(std::span<const batch::Planner::Verdict> verdicts);
  /// The response is whole.
  void end(RequestId request, GroupId group, std::span<const Token> response);
  /// The group is complete.
  void forget_group(GroupId group);
  /// New weights.
  void drop_all();

  const batch::DraftClient& client() const { return *client_; }
  Stats stats() const;

 private:
  Drafting(const Config& config, const rollout::StepCost& cost, std::unique_ptr<batch::DraftClient> client,
           const rollout::ResponseHistory* history);
  void register_group(const DraftContext& context);
  rollout::DraftClass class_of(RequestId request) const;

  struct Member {
    GroupId group;
    rollout::DraftClass draft_class;
  };

  Config config_;
  std::unique_ptr<batch::DraftClient> client_;
  const rollout::ResponseHistory* history_;
  rollout::DraftLengthPlanner lengths_;
  std::unordered_map<RequestId, Member> members_;  // that have run here, of groups not yet complete
  std::int64_t version_ = 0;
  std::int64_t sequence_steps_ = 0;
  std::int64_t wanted_tokens_ = 0;
  // Of the present step.
  std::vector<batch::DraftQuery> queries_;
  std::vector<std::pair<batch::Slot, rollout::DraftClass>> asked_;
};

}  // namespace rondo::engine
