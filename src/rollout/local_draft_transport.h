// LocalDraftTransport: a draft client in the server's own process.
#pragma once

#include "batch/draft_transport.h"
#include "rollout/draft_server.h"

namespace rondo::rollout {

/// Calls the server at once, on the client's thread, and keeps the replies until they are received. Loses
/// nothing. Borrows the server; one owner thread, that of its client.
class LocalDraftTransport final : public batch::DraftTransport {
 public:
  explicit LocalDraftTransport(DraftServer& server) : server_(server) {}

  void update(const batch::DraftUpdate& message) override;
  void fetch(const batch::DraftFetch& message) override;
  void register_group(PolicyVersion version, GroupId group, std::int64_t ttl_ns) override;
  void receive(batch::DraftReplies& replies) override;

 private:
  DraftServer& server_;
  batch::DraftReplies waiting_;
};

}  // namespace rondo::rollout
