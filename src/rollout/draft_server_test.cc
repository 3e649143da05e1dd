#include "rollout/draft_server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace rondo::rollout {
namespace {

using batch::DraftFetch;
using batch::DraftFetchReply;
using batch::DraftOutcome;
using Tokens = std::vector<Token>;

constexpr GroupId kGroup{7};
constexpr RequestId kRequest{1};
constexpr PolicyVersion kVersion{3};
constexpr std::int64_t kTtl = 100;

class ManualClock final : public Clock {
 public:
  std::int64_t now_ns() const override { return now; }
  std::int64_t now = 1000;
};

DraftFetch make_fetch(GroupId group, std::vector<batch::DraftCount> counts, std::int32_t max_tokens = 1000) {
  return {.version = kVersion,
          .number = 5,
          .max_tokens = max_tokens,
          .groups = {{.group = group, .begin = 0, .size = counts.size()}},
          .counts = std::move(counts)};
}

class DraftServerTest : public testing::Test {
 protected:
  void SetUp() override { start({}); }
  void TearDown() override { server_->check_invariants(); }
  void start(const DraftServer::Config& config) {
    server_ = *DraftServer::create(config, clock_);
    server_->clear(kVersion);
    ASSERT_TRUE(server_->register_group(kVersion, kGroup, kTtl));
  }
  DraftServer::Appended update(std::int32_t previous_count, const Tokens& tokens,
                               RequestId request = kRequest, GroupId group = kGroup) {
    return server_->update_cst(kVersion, {group, request, previous_count, tokens});
  }
  DraftFetchReply fetch(std::vector<batch::DraftCount> counts, std::int32_t max_tokens = 1000) {
    DraftFetchReply reply;
    server_->fetch_cst(make_fetch(kGroup, std::move(counts), max_tokens), reply);
    return reply;
  }
  Tokens tokens() { return server_->tokens(kGroup, kRequest); }

  ManualClock clock_;
  std::unique_ptr<DraftServer> server_;
};

Tokens to_vector(std::span<const Token> tokens) {
  return {tokens.begin(), tokens.end()};
}

TEST_F(DraftServerTest, AppendsWhatContinues) {
  EXPECT_EQ(update(0, {1, 2}), (DraftServer::Appended{DraftOutcome::kTaken, 2}));
  EXPECT_EQ(update(2, {3}), (DraftServer::Appended{DraftOutcome::kTaken, 3}));
  EXPECT_EQ(tokens(), Tokens({1, 2, 3}));
}

TEST_F(DraftServerTest, SkipsWhatItKnows) {
  update(0, {1, 2, 3});
  EXPECT_EQ(update(0, {1, 2, 3}), (DraftServer::Appended{DraftOutcome::kTaken, 3}));
  EXPECT_EQ(update(1, {2}), (DraftServer::Appended{DraftOutcome::kTaken, 3}));
  EXPECT_EQ(update(3, {}), (DraftServer::Appended{DraftOutcome::kTaken, 3}));
  EXPECT_EQ(update(1, {2, 3, 4}), (DraftServer::Appended{DraftOutcome::kTaken, 4}));
  EXPECT_EQ(tokens(), Tokens({1, 2, 3, 4}));
}

TEST_F(DraftServerTest, AnswersAGapWithTheCountItHas) {
  EXPECT_EQ(update(2, {3}), (DraftServer::Appended{DraftOutcome::kGap, 0}));
  update(0, {1, 2});
  EXPECT_EQ(update(3, {4}), (DraftServer::Appended{DraftOutcome::kGap, 2}));
  EXPECT_EQ(tokens(), Tokens({1, 2}));
}

TEST_F(DraftServerTest, KeepsContradictionsOut) {
  update(0, {1, 2, 3});
  EXPECT_EQ(update(1, {9, 3, 4}), (DraftServer::Appended{DraftOutcome::kContradiction, 3}));
  EXPECT_EQ(tokens(), Tokens({1, 2, 3}));
}

TEST_F(DraftServerTest, KnowsRegisteredGroupsAlone) {
  EXPECT_EQ(update(0, {1}, kRequest, GroupId(8)).outcome, DraftOutcome::kUnknownGroup);
  server_->remove_group(kGroup);
  EXPECT_EQ(update(0, {1}).outcome, DraftOutcome::kUnknownGroup);
  EXPECT_EQ(fetch({}).unknown_groups, std::vector{kGroup});
  EXPECT_EQ(server_->memory_bytes(), 0U);
}

TEST_F(DraftServerTest, RegisteringAgainKeepsTheTokens) {
  update(0, {1, 2});
  EXPECT_TRUE(server_->register_group(kVersion, kGroup, kTtl));
  EXPECT_EQ(tokens(), Tokens({1, 2}));
}

TEST_F(DraftServerTest, RefusesWhatIsOfAnotherVersion) {
  update(0, {1, 2});
  server_->clear(PolicyVersion(4));
  EXPECT_EQ(server_->num_groups(), 0U);
  EXPECT_EQ(server_->memory_bytes(), 0U);
  EXPECT_FALSE(server_->register_group(kVersion, kGroup, kTtl));
  EXPECT_EQ(update(0, {1}).outcome, DraftOutcome::kOtherVersion);
  ASSERT_TRUE(server_->register_group(PolicyVersion(4), kGroup, kTtl));
  EXPECT_EQ(update(0, {1}).outcome, DraftOutcome::kOtherVersion);
  EXPECT_TRUE(fetch({}).deltas.empty());
  EXPECT_TRUE(fetch({}).unknown_groups.empty());
}

TEST_F(DraftServerTest, SendsWhatTheClientLacks) {
  update(0, {1, 2, 3}, RequestId(1));
  update(0, {4, 5}, RequestId(2));
  update(0, {6}, RequestId(3));
  const DraftFetchReply reply = fetch({{RequestId(1), 1, 0}, {RequestId(3), 1, 0}});
  EXPECT_EQ(reply.version, kVersion);
  EXPECT_EQ(reply.number, 5);
  ASSERT_EQ(reply.deltas.size(), 2U);
  EXPECT_EQ(reply.deltas[0].group, kGroup);
  EXPECT_EQ(reply.deltas[0].request, RequestId(1));
  EXPECT_EQ(reply.deltas[0].previous_count, 1);
  EXPECT_EQ(to_vector(reply.deltas[0].tokens), Tokens({2, 3}));
  EXPECT_EQ(reply.deltas[1].request, RequestId(2));
  EXPECT_EQ(reply.deltas[1].previous_count, 0);
  EXPECT_EQ(to_vector(reply.deltas[1].tokens), Tokens({4, 5}));
}

TEST_F(DraftServerTest, SendsNothingToAClientThatIsAhead) {
  update(0, {1, 2, 3});
  EXPECT_TRUE(fetch({{kRequest, 3, 0}}).deltas.empty());
  EXPECT_TRUE(fetch({{kRequest, 10, 0}}).deltas.empty());
}

TEST_F(DraftServerTest, NamesWhatTheClientWronglyTakesForKnown) {
  update(0, {1, 2, 3});
  EXPECT_TRUE(fetch({{kRequest, 10, 3}, {RequestId(2), 10, 0}}).gaps.empty());
  const DraftFetchReply reply = fetch({{kRequest, 10, 4}, {RequestId(2), 10, 1}});
  ASSERT_EQ(reply.gaps.size(), 2U);
  EXPECT_EQ(reply.gaps[0].request, kRequest);
  EXPECT_EQ(reply.gaps[0].outcome, DraftOutcome::kGap);
  EXPECT_EQ(reply.gaps[0].count, 3);
  EXPECT_EQ(reply.gaps[1].request, RequestId(2));
  EXPECT_EQ(reply.gaps[1].count, 0);
}

TEST_F(DraftServerTest, CutsAReplyAtItsLimit) {
  update(0, {1, 2, 3}, RequestId(1));
  update(0, {4, 5}, RequestId(2));
  const DraftFetchReply reply = fetch({}, 4);
  ASSERT_EQ(reply.deltas.size(), 2U);
  EXPECT_EQ(to_vector(reply.deltas[1].tokens), Tokens({4}));
}

TEST_F(DraftServerTest, ForgetsAGroupThatNobodyAsksFor) {
  update(0, {1, 2});
  clock_.now += kTtl - 1;
  EXPECT_EQ(update(2, {3}).outcome, DraftOutcome::kTaken);
  clock_.now += 1;
  EXPECT_EQ(update(3, {4}).outcome, DraftOutcome::kUnknownGroup);
  EXPECT_EQ(server_->memory_bytes(), 0U);
}

TEST_F(DraftServerTest, FetchingRenewsTheTimeToLive) {
  update(0, {1, 2});
  for (int i = 0; i < 5; ++i) {
    clock_.now += kTtl - 1;
    EXPECT_EQ(fetch({}).deltas.size(), 1U);
  }
  clock_.now += kTtl;
  EXPECT_EQ(fetch({}).unknown_groups, std::vector{kGroup});
}

TEST_F(DraftServerTest, AShorterTimeToLiveDoesNotShortenALife) {
  EXPECT_TRUE(server_->register_group(kVersion, kGroup, 1));
  clock_.now += kTtl - 1;
  EXPECT_EQ(update(0, {1}).outcome, DraftOutcome::kTaken);
}

TEST_F(DraftServerTest, RefusesTokensBeyondItsMemory) {
  start({.max_bytes = 1 << 16});
  std::int32_t count = 0;
  const Tokens piece(100, 1);
  while (update(count, piece).outcome == DraftOutcome::kTaken) count += 100;
  EXPECT_EQ(update(count, piece), (DraftServer::Appended{DraftOutcome::kNoMemory, count}));
  EXPECT_LE(server_->memory_bytes(), std::size_t{1} << 16);
  EXPECT_GT(count, (1 << 16) / 16);
  EXPECT_EQ(tokens().size(), static_cast<std::size_t>(count));
  int num_groups = 1;
  while (server_->register_group(kVersion, GroupId(100 + num_groups), kTtl)) ++num_groups;
  EXPECT_EQ(server_->num_groups(), static_cast<std::size_t>(num_groups));
  EXPECT_LT(num_groups, 1000);
}

TEST_F(DraftServerTest, MakesRoomByForgettingExpiredGroupsOfAllShards) {
  start({.num_shards = 16, .max_bytes = 1 << 16});
  for (int id = 8; id < 24; ++id) {
    ASSERT_TRUE(server_->register_group(kVersion, GroupId(id), kTtl / 2));
    update(0, Tokens(800, 1), kRequest, GroupId(id));
  }
  EXPECT_EQ(update(0, Tokens(8000, 1)).outcome, DraftOutcome::kNoMemory);
  clock_.now += kTtl / 2;
  EXPECT_EQ(update(0, Tokens(8000, 1)).outcome, DraftOutcome::kTaken);
  EXPECT_EQ(server_->num_groups(), 1U);
}

TEST_F(DraftServerTest, RefusesSettingsThatMakeNoSense) {
  EXPECT_FALSE(DraftServer::create({.num_shards = 0}, clock_));
  EXPECT_FALSE(DraftServer::create({.max_bytes = 0}, clock_));
}

// Random calls, against maps without shards, memory or overlaps to take care of.
TEST_F(DraftServerTest, EqualsANaiveModel) {
  std::mt19937 random(1);
  start({.num_shards = 3});
  server_->remove_group(kGroup);
  const auto truth = [](int group, int request, std::size_t at) {
    return static_cast<Token>((at * 7 + static_cast<std::size_t>(group * 31 + request)) % 101);
  };
  std::map<int, std::int64_t> expiry;
  std::map<std::pair<int, int>, std::size_t> counts;
  for (int step = 0; step < 20'000; ++step) {
    const int group = static_cast<int>(random() % 6);
    const int request = static_cast<int>(random() % 3);
    std::erase_if(expiry, [&](const auto& entry) { return entry.second <= clock_.now; });
    std::erase_if(counts, [&](const auto& entry) { return !expiry.contains(entry.first.first); });
    switch (random() % 8) {
      case 0:
        clock_.now += static_cast<std::int64_t>(random() % (kTtl / 4));
        break;
      case 1:
        ASSERT_TRUE(server_->register_group(kVersion, GroupId(group), kTtl));
        expiry[group] = clock_.now + kTtl;
        break;
      case 2: {
        DraftFetchReply reply;
        server_->fetch_cst(make_fetch(GroupId(group), {{RequestId(1), 2, 0}}), reply);
        ASSERT_EQ(reply.unknown_groups.empty(), expiry.contains(group));
        if (expiry.contains(group)) expiry[group] = clock_.now + kTtl;
        break;
      }
      default: {
        std::size_t& count = counts[{group, request}];
        const std::size_t begin = random() % (count + 3);
        Tokens tokens(random() % 20);
        for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = truth(group, request, begin + i);
        const auto outcome =
            update(static_cast<std::int32_t>(begin), tokens, RequestId(request), GroupId(group));
        const bool known = expiry.contains(group);
        ASSERT_EQ(outcome.outcome, !known ? DraftOutcome::kUnknownGroup
                                          : (begin > count ? DraftOutcome::kGap : DraftOutcome::kTaken));
        if (known && begin <= count) count = std::max(count, begin + tokens.size());
        ASSERT_EQ(outcome.count, static_cast<std::int32_t>(known ? count : 0));
      }
    }
    if (step % 64 == 0) server_->check_invariants();
  }
  for (const auto& [key, count] : counts) {
    if (!expiry.contains(key.first) || expiry[key.first] <= clock_.now) continue;
    const Tokens held = server_->tokens(GroupId(key.first), RequestId(key.second));
    ASSERT_EQ(held.size(), count);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(held[i], truth(key.first, key.second, i));
  }
}

// Writers of overlapping parts of the same responses, readers, and a new version in between.
TEST_F(DraftServerTest, ServesManyThreads) {
  constexpr int kNumThreads = 4;
  constexpr int kNumTokens = 400;
  const auto generate = [&](int thread, PolicyVersion version) {
    std::mt19937 random(static_cast<std::uint32_t>(thread));
    Tokens read;
    while (read.size() < kNumTokens) {
      const GroupId group(static_cast<std::int64_t>(random() % 3));
      server_->register_group(version, group, kTtl);
      const auto begin = static_cast<Token>(server_->tokens(group, kRequest).size());
      Tokens tokens;
      for (Token token = begin; token < std::min(begin + 5, kNumTokens); ++token) tokens.push_back(token);
      server_->update_cst(version, {group, kRequest, begin, tokens});
      DraftFetch request = make_fetch(group, {{kRequest, static_cast<std::int32_t>(read.size()), 0}});
      request.version = version;
      DraftFetchReply reply;
      server_->fetch_cst(request, reply);
      for (std::size_t i = 0; i < reply.deltas.size(); ++i)
        read.insert(read.end(), reply.deltas[i].tokens.begin(), reply.deltas[i].tokens.end());
    }
    for (int i = 0; i < kNumTokens; ++i) EXPECT_EQ(read[static_cast<std::size_t>(i)], i);
  };
  for (const PolicyVersion version : {kVersion, PolicyVersion(4)}) {
    server_->clear(version);
    std::vector<std::thread> threads;
    for (int i = 0; i < kNumThreads; ++i) threads.emplace_back(generate, i, version);
    std::thread late([&] { server_->register_group(PolicyVersion(2), kGroup, kTtl); });
    for (std::thread& thread : threads) thread.join();
    late.join();
    server_->check_invariants();
  }
  EXPECT_EQ(server_->num_groups(), 3U);
}

}  // namespace
}  // namespace rondo::rollout
