// LossyDraftTransport: a network at its worst, for tests.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "batch/draft_transport.h"

namespace rondo::rollout {

/// Passes messages on to another transport and replies back, but loses, repeats, delays and reorders both as
/// a seeded generator says. Borrows `inner`. One owner thread.
class LossyDraftTransport final : public batch::DraftTransport {
 public:
  struct Weather {
    double loss = 0.2;    // chance that a message or reply never arrives
    double repeat = 0.2;  // chance that it arrives once more, later
    double delay = 0.5;   // chance that it waits for another call of receive(), each time
  };

  LossyDraftTransport(batch::DraftTransport& inner, const Weather& weather, std::uint32_t seed)
      : inner_(inner), weather_(weather), random_(seed) {}

  void update(const batch::DraftUpdate& message) override;
  void fetch(const batch::DraftFetch& message) override;
  void register_group(PolicyVersion version, GroupId group, std::int64_t ttl_ns) override;
  void receive(batch::DraftReplies& replies) override;

  /// Messages and replies that never arrived, and times that one had to wait.
  std::int64_t num_lost() const { return num_lost_; }
  std::int64_t num_delays() const { return num_delays_; }

 private:
  // A message or a reply on its way: what happens when it arrives.
  using Parcel = std::function<void(batch::DraftReplies&)>;

  bool chance(double probability) { return std::uniform_real_distribution<>(0, 1)(random_) < probability; }
  void post(Parcel parcel);
  void arrive(batch::DraftReplies& replies);

  batch::DraftTransport& inner_;
  Weather weather_;
  std::mt19937 random_;
  std::vector<Parcel> on_the_way_;
  std::int64_t num_lost_ = 0;
  std::int64_t num_delays_ = 0;
};

}  // namespace rondo::rollout
