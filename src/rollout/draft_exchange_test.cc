// Draft clients and their server together, over transports that work and transports that do not.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "batch/draft_client.h"
#include "rollout/draft_server.h"
#include "rollout/local_draft_transport.h"
#include "rollout/lossy_draft_transport.h"

namespace rondo::rollout {
namespace {

using batch::DraftClient;
using Tokens = std::vector<Token>;

class ManualClock final : public Clock {
 public:
  std::int64_t now_ns() const override { return now; }
  std::int64_t now = 0;
};

// Responses that share phrases with their siblings; those of another version are others.
Tokens make_response(PolicyVersion version, int request, int length) {
  std::mt19937 random(static_cast<std::uint32_t>(version.value() * 1000 + request));
  Tokens tokens;
  while (std::ssize(tokens) < length) {
    const auto phrase = static_cast<Token>(random() % 8);
    for (Token i = 0; i < 5; ++i) tokens.push_back(phrase * 5 + i);
    if (random() % 4 == 0) tokens.push_back(static_cast<Token>(40 + random() % 10));
  }
  tokens.resize(static_cast<std::size_t>(length));
  return tokens;
}

// Instances that generate the responses of some groups, each request on one instance at a time.
class Cluster final {
 public:
  static constexpr int kNumInstances = 3;
  static constexpr int kNumGroups = 4;
  static constexpr int kGroupSize = 4;
  static constexpr int kNumRequests = kNumGroups * kGroupSize;

  Cluster(std::uint32_t seed, const LossyDraftTransport::Weather& weather, const DraftClient::Config& config)
      : random_(seed), server_(*DraftServer::create({.num_shards = 3}, clock_)) {
    for (int i = 0; i < kNumInstances; ++i) {
      local_.push_back(std::make_unique<LocalDraftTransport>(*server_));
      lossy_.push_back(std::make_unique<LossyDraftTransport>(*local_.back(), weather, random_()));
      clients_.push_back(*DraftClient::create(config, *lossy_.back()));
    }
  }

  void start(PolicyVersion version) {
    version_ = version;
    server_->clear(version);
    for (const auto& client : clients_) {
      client->drop_all(version);
      for (int group = 0; group < kNumGroups; ++group)
        client->register_group(GroupId(group), Tokens{1, 2, 3});
    }
    homes_.assign(kNumRequests, 0);
    lengths_.assign(kNumRequests, 0);
    responses_.clear();
    for (int i = 0; i < kNumRequests; ++i)
      responses_.push_back(make_response(version, i, 20 + static_cast<int>(random_() % 300)));
    for (int& home : homes_) home = draw(kNumInstances);
  }

  // Each response grows by a few tokens; now and then one goes on elsewhere, or falls back to an earlier
  // state there, as after a failure.
  void step() {
    for (int i = 0; i < kNumRequests; ++i) {
      std::size_t& length = length_of(i);
      if (draw(50) == 0) home_of(i) = draw(kNumInstances);
      if (draw(200) == 0) length /= 2;
      length = std::min(length + static_cast<std::size_t>(draw(4)), response(i).size());
      client_of(i).own_tokens(group_of(i), RequestId(i), so_far(i));
      if (own_tokens_at_once_ && !holds(client_of(i), i, length)) own_tokens_at_once_ = false;
    }
    for (const auto& client : clients_) client->end_step();
    clock_.now += 1'000'000;
    if (draw(100) == 0) clock_.now += 700'000'000'000;  // every group expires
    if (draw(300) == 0) server_->remove_group(GroupId(draw(kNumGroups)));
  }
  void finish() {
    for (int i = 0; i < kNumRequests; ++i) {
      length_of(i) = response(i).size();
      client_of(i).own_tokens(group_of(i), RequestId(i), so_far(i));
    }
  }
  void sync_all() {
    for (const auto& client : clients_) client->sync();
  }

  bool own_tokens_at_once() const { return own_tokens_at_once_; }
  // Whether every tree holds true prefixes alone.
  bool holds_truth() const {
    return std::ranges::all_of(clients_, [this](const auto& client) {
      for (int i = 0; i < kNumRequests; ++i) {
        const auto held = client->tokens(group_of(i), RequestId(i));
        const Tokens& truth = responses_[static_cast<std::size_t>(i)];
        if (held.size() > truth.size() || !std::equal(held.begin(), held.end(), truth.begin())) return false;
      }
      return true;
    });
  }
  bool holds_everything() const {
    return std::ranges::all_of(clients_, [this](const auto& client) {
      for (int i = 0; i < kNumRequests; ++i)
        if (!holds(*client, i, responses_[static_cast<std::size_t>(i)].size())) return false;
      return true;
    });
  }
  void check_invariants() const {
    for (const auto& client : clients_) client->check_invariants();
    server_->check_invariants();
  }

  // What client `instance` drafts behind `length` tokens of each response, in a row.
  Tokens drafts(int instance, std::size_t length) {
    std::vector<batch::DraftQuery> queries;
    for (int i = 0; i < kNumRequests; ++i)
      queries.push_back({.slot = batch::Slot(i),
                         .group = group_of(i),
                         .request = RequestId(i),
                         .response = std::span(response(i)).first(std::min(length, response(i).size())),
                         .args = {.max_tokens = 8, .min_prob = 0.01, .top_k = 2}});
    batch::Drafts out;
    clients_[static_cast<std::size_t>(instance)]->batch_speculate(queries, out);
    Tokens all;
    for (int i = 0; i < kNumRequests; ++i) {
      const auto draft = out.find(batch::Slot(i));
      all.insert(all.end(), draft.tokens.begin(), draft.tokens.end());
      all.insert(all.end(), draft.parents.begin(), draft.parents.end());
      all.push_back(-2);
    }
    return all;
  }
  const DraftClient::Stats& stats(int instance) const {
    return clients_[static_cast<std::size_t>(instance)]->stats();
  }

 private:
  static GroupId group_of(int request) { return GroupId(request / kGroupSize); }
  int draw(int bound) { return static_cast<int>(random_() % static_cast<std::uint32_t>(bound)); }
  int& home_of(int request) { return homes_[static_cast<std::size_t>(request)]; }
  std::size_t& length_of(int request) { return lengths_[static_cast<std::size_t>(request)]; }
  const Tokens& response(int request) const { return responses_[static_cast<std::size_t>(request)]; }
  std::span<const Token> so_far(int request) {
    return std::span(response(request)).first(length_of(request));
  }
  DraftClient& client_of(int request) { return *clients_[static_cast<std::size_t>(home_of(request))]; }
  static bool holds(const DraftClient& client, int request, std::size_t length) {
    return client.tokens(group_of(request), RequestId(request)).size() >= length;
  }

  std::mt19937 random_;
  ManualClock clock_;
  std::unique_ptr<DraftServer> server_;
  std::vector<std::unique_ptr<LocalDraftTransport>> local_;
  std::vector<std::unique_ptr<LossyDraftTransport>> lossy_;
  std::vector<std::unique_ptr<DraftClient>> clients_;
  PolicyVersion version_;
  std::vector<Tokens> responses_;
  std::vector<std::size_t> lengths_;
  std::vector<int> homes_;
  bool own_tokens_at_once_ = true;
};

const LossyDraftTransport::Weather kFair{.loss = 0, .repeat = 0, .delay = 0};

DraftClient::Config small_batches(std::int32_t max_fetch_tokens = 4096) {
  return {.append_batch = 4, .fetch_period = 3, .resend_syncs = 4, .max_fetch_tokens = max_fetch_tokens};
}

TEST(DraftExchangeTest, TreesHoldTrueTokensAloneWhateverTheTransportDoes) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    const auto share = [&] { return static_cast<double>(random() % 9) / 10; };
    const LossyDraftTransport::Weather weather{.loss = share(), .repeat = share(), .delay = share()};
    Cluster cluster(seed, weather, small_batches(1 + static_cast<std::int32_t>(random() % 200)));
    for (int version = 1; version <= 3; ++version) {
      cluster.start(PolicyVersion(version));
      for (int step = 0; step < 100; ++step) {
        cluster.step();
        ASSERT_TRUE(cluster.holds_truth()) << "seed " << seed << " version " << version << " step " << step;
      }
      cluster.check_invariants();
    }
    EXPECT_TRUE(cluster.own_tokens_at_once());
    for (int i = 0; i < Cluster::kNumInstances; ++i) EXPECT_EQ(cluster.stats(i).contradictions, 0);
  }
}

TEST(DraftExchangeTest, EveryClientHoldsEverythingAfterAFewSyncsOverATransportThatWorks) {
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    Cluster cluster(seed, kFair, {.append_batch = 4, .fetch_period = 3});
    cluster.start(PolicyVersion(1));
    for (int step = 0; step < 100; ++step) cluster.step();
    cluster.finish();
    EXPECT_FALSE(cluster.holds_everything());
    for (int i = 0; i < 8; ++i) cluster.sync_all();
    EXPECT_TRUE(cluster.holds_everything()) << "seed " << seed;
  }
}

TEST(DraftExchangeTest, EveryClientHoldsEverythingInTheEndEvenOverATransportThatHardlyWorks) {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    Cluster cluster(seed, {.loss = 0.5, .repeat = 0.3, .delay = 0.5}, small_batches(500));
    cluster.start(PolicyVersion(1));
    for (int step = 0; step < 100; ++step) cluster.step();
    cluster.finish();
    int syncs = 0;
    for (; syncs < 2000 && !cluster.holds_everything(); ++syncs) cluster.sync_all();
    EXPECT_LT(syncs, 2000) << "seed " << seed;
    EXPECT_TRUE(cluster.holds_truth());
  }
}

TEST(DraftExchangeTest, ClientsThatHoldTheSameDraftTheSame) {
  Cluster cluster(1, kFair, small_batches());
  cluster.start(PolicyVersion(1));
  for (int step = 0; step < 50; ++step) cluster.step();
  EXPECT_NE(cluster.drafts(0, 60), cluster.drafts(1, 60));
  cluster.finish();
  for (int i = 0; i < 8; ++i) cluster.sync_all();
  ASSERT_TRUE(cluster.holds_everything());
  for (const std::size_t length : {0U, 1U, 10U, 23U, 24U, 60U, 1000U}) {
    EXPECT_EQ(cluster.drafts(0, length), cluster.drafts(1, length)) << "behind " << length << " tokens";
    EXPECT_EQ(cluster.drafts(0, length), cluster.drafts(2, length)) << "behind " << length << " tokens";
  }
  EXPECT_GT(cluster.stats(0).draft_hit(), 0.5);
}

// One engine per thread, all on one server.
TEST(DraftExchangeTest, ClientsOnThreadsOfTheirOwnFindTheTruth) {
  constexpr int kNumThreads = 4;
  const SteadyClock clock;
  const auto server = *DraftServer::create({}, clock);
  const PolicyVersion version(1);
  server->clear(version);
  std::vector<Tokens> responses;
  for (int i = 0; i < kNumThreads; ++i) responses.push_back(make_response(version, i, 300));
  const auto run = [&](int thread) {
    LocalDraftTransport transport(*server);
    const auto client = *DraftClient::create(small_batches(), transport);
    client->drop_all(version);
    client->register_group(GroupId(0), {});
    const auto own = std::span<const Token>(responses[static_cast<std::size_t>(thread)]);
    for (std::size_t length = 0; length <= own.size(); ++length) {
      client->own_tokens(GroupId(0), RequestId(thread), own.first(length));
      client->end_step();
    }
    const auto complete = [&] {
      for (int i = 0; i < kNumThreads; ++i)
        if (client->tokens(GroupId(0), RequestId(i)).size() < 300) return false;
      return true;
    };
    // The last tokens leave with the second sync at the latest.
    for (int syncs = 0; syncs < 3 || !complete(); ++syncs) {
      client->sync();
      std::this_thread::yield();
    }
    for (int i = 0; i < kNumThreads; ++i) {
      const auto held = client->tokens(GroupId(0), RequestId(i));
      EXPECT_TRUE(std::ranges::equal(held, responses[static_cast<std::size_t>(i)]));
    }
    client->check_invariants();
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kNumThreads; ++i) threads.emplace_back(run, i);
  for (std::thread& thread : threads) thread.join();
  server->check_invariants();
}

}  // namespace
}  // namespace rondo::rollout
