#include "rollout/local_draft_transport.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace rondo::rollout {

void LocalDraftTransport::update(const batch::DraftUpdate& message) {
  batch::DraftUpdateReply reply{.version = message.version, .acks = {}};
  reply.acks.reserve(message.deltas.size());
  for (std::size_t i = 0; i < message.deltas.size(); ++i) {
    const batch::DraftDelta delta = message.deltas[i];
    const DraftServer::Appended appended = server_.update_cst(message.version, delta);
    reply.acks.push_back({.group = delta.group,
                          .request = delta.request,
                          .outcome = appended.outcome,
                          .count = appended.count});
  }
  waiting_.updates.push_back(std::move(reply));
}

void LocalDraftTransport::fetch(const batch::DraftFetch& message) {
  server_.fetch_cst(message, waiting_.fetches.emplace_back());
}

void LocalDraftTransport::register_group(PolicyVersion version, GroupId group, std::int64_t ttl_ns) {
  server_.register_group(version, group, ttl_ns);
}

void LocalDraftTransport::receive(batch::DraftReplies& replies) {
  std::ranges::move(waiting_.updates, std::back_inserter(replies.updates));
  std::ranges::move(waiting_.fetches, std::back_inserter(replies.fetches));
  waiting_.clear();
}

}  // namespace rondo::rollout
