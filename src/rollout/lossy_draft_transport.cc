#include "rollout/lossy_draft_transport.h"

#include <algorithm>
#include <utility>

namespace rondo::rollout {

void LossyDraftTransport::post(Parcel parcel) {
  if (chance(weather_.repeat)) on_the_way_.push_back(parcel);
  if (chance(weather_.loss)) {
    ++num_lost_;
  } else {
    on_the_way_.push_back(std::move(parcel));
  }
}

void LossyDraftTransport::update(const batch::DraftUpdate& message) {
  post([this, message](batch::DraftReplies&) { inner_.update(message); });
}

void LossyDraftTransport::fetch(const batch::DraftFetch& message) {
  post([this, message](batch::DraftReplies&) { inner_.fetch(message); });
}

void LossyDraftTransport::register_group(PolicyVersion version, GroupId group, std::int64_t ttl_ns) {
  post([this, version, group, ttl_ns](batch::DraftReplies&) {
    inner_.register_group(version, group, ttl_ns);
  });
}

// Lets a random part of what is on its way arrive, in random order.
void LossyDraftTransport::arrive(batch::DraftReplies& replies) {
  std::ranges::shuffle(on_the_way_, random_);
  std::vector<Parcel> arriving = std::exchange(on_the_way_, {});
  for (Parcel& parcel : arriving) {
    if (chance(weather_.delay)) {
      ++num_delays_;
      on_the_way_.push_back(std::move(parcel));
    } else {
      parcel(replies);
    }
  }
}

void LossyDraftTransport::receive(batch::DraftReplies& replies) {
  arrive(replies);
  batch::DraftReplies answers;
  inner_.receive(answers);
  for (const batch::DraftUpdateReply& answer : answers.updates)
    post([answer](batch::DraftReplies& out) { out.updates.push_back(answer); });
  for (const batch::DraftFetchReply& answer : answers.fetches)
    post([answer](batch::DraftReplies& out) { out.fetches.push_back(answer); });
}

}  // namespace rondo::rollout
