#include "batch/draft_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

namespace rondo::batch {
namespace {

using Tokens = std::vector<Token>;

constexpr GroupId kGroup{7};
constexpr RequestId kOwn{1};
constexpr RequestId kOther{2};
constexpr PolicyVersion kVersion{3};

// Keeps what the client posts, and hands out the replies that a test puts in.
class ScriptedTransport final : public DraftTransport {
 public:
  void update(const DraftUpdate& message) override { updates.push_back(message); }
  void fetch(const DraftFetch& message) override { fetches.push_back(message); }
  void register_group(PolicyVersion, GroupId group, std::int64_t) override { registered.push_back(group); }
  void receive(DraftReplies& out) override {
    out = replies;
    replies.clear();
  }

  void acknowledge(DraftOutcome outcome, std::int32_t count) {
    replies.updates.push_back({kVersion, {{kGroup, kOwn, outcome, count}}});
  }
  // Answers the last fetch with these tokens of a response.
  void deliver(RequestId request, std::int32_t previous_count, const Tokens& tokens,
               PolicyVersion version = kVersion) {
    DraftFetchReply reply{.version = version, .number = fetches.empty() ? 0 : fetches.back().number};
    reply.deltas.add({kGroup, request, previous_count, tokens});
    replies.fetches.push_back(reply);
  }

  std::vector<DraftUpdate> updates;
  std::vector<DraftFetch> fetches;
  std::vector<GroupId> registered;
  DraftReplies replies;
};

Tokens range(Token begin, Token end) {
  Tokens tokens(static_cast<std::size_t>(end - begin));
  std::iota(tokens.begin(), tokens.end(), begin);
  return tokens;
}

Tokens to_vector(std::span<const Token> tokens) {
  return {tokens.begin(), tokens.end()};
}

class DraftClientTest : public testing::Test {
 protected:
  void start(const DraftClient::Config& config, const Tokens& prompt = {}) {
    client_ = *DraftClient::create(config, transport_);
    client_->drop_all(kVersion);
    client_->register_group(kGroup, prompt);
  }
  void SetUp() override { start({}); }
  void TearDown() override { client_->check_invariants(); }

  void own(const Tokens& response) { client_->own_tokens(kGroup, kOwn, response); }
  Tokens tokens(RequestId request) { return to_vector(client_->tokens(kGroup, request)); }
  Tokens draft(RequestId request, const Tokens& response, const suffix::DraftArgs& args = {}) {
    const DraftQuery query{Slot(0), kGroup, request, response, args};
    Drafts drafts;
    client_->batch_speculate({&query, 1}, drafts);
    return to_vector(drafts.find(Slot(0)).tokens);
  }
  // What the last update says of kOwn.
  DraftDelta last_update() { return transport_.updates.back().deltas[0]; }

  ScriptedTransport transport_;
  std::unique_ptr<DraftClient> client_;
};

TEST_F(DraftClientTest, DraftsFromOwnTokensAtOnce) {
  own({5, 6, 7, 8, 5, 6});
  EXPECT_EQ(draft(kOwn, {5, 6, 7, 8, 5, 6}, {.max_tokens = 3}), Tokens({7, 8, 5}));
  EXPECT_TRUE(transport_.updates.empty());
  EXPECT_EQ(client_->stats().hits, 1);
  EXPECT_EQ(client_->stats().drafted_tokens, 3);
}

TEST_F(DraftClientTest, DraftsFromThePromptBeforeThereIsAResponse) {
  start({}, {1, 2, 3, 4, 1, 2});
  EXPECT_EQ(draft(kOwn, {}, {.max_tokens = 2}), Tokens({3, 4}));
  EXPECT_EQ(draft(kOwn, {3}, {.max_tokens = 1, .min_match = 3}), Tokens({4}));
}

TEST_F(DraftClientTest, DraftsNothingForAnUnknownGroup) {
  own({5, 5, 5});
  const Tokens response{5, 5};
  const DraftQuery query{Slot(0), GroupId(8), kOwn, response, {}};
  Drafts drafts;
  client_->batch_speculate({&query, 1}, drafts);
  EXPECT_TRUE(drafts.empty());
  EXPECT_EQ(client_->stats().draft_hit(), 0);
}

TEST_F(DraftClientTest, DraftsForManySequencesInOneCall) {
  own({5, 6, 7, 8});
  const Tokens first{5}, second{6}, unseen{9};
  const std::vector<DraftQuery> queries{{Slot(4), kGroup, kOther, first, {.max_tokens = 1}},
                                        {Slot(0), kGroup, RequestId(3), unseen, {}},
                                        {Slot(2), kGroup, RequestId(4), second, {.max_tokens = 2}}};
  Drafts drafts;
  client_->batch_speculate(queries, drafts);
  EXPECT_EQ(to_vector(drafts.find(Slot(4)).tokens), Tokens({6}));
  EXPECT_EQ(to_vector(drafts.find(Slot(2)).tokens), Tokens({7, 8}));
  EXPECT_EQ(drafts.find(Slot(0)).size(), 0);
  EXPECT_EQ(client_->stats().queries, 3);
  EXPECT_EQ(client_->stats().hits, 2);
}

TEST_F(DraftClientTest, DraftsTreesWithTheirParents) {
  own({1, 2, 1, 3, 1, 2, 1});
  const Tokens response = tokens(kOwn);
  const DraftQuery query{
      Slot(0), kGroup, kOwn, response, {.max_tokens = 2, .max_match = 1, .min_prob = 0.01, .top_k = 2}};
  Drafts drafts;
  client_->batch_speculate({&query, 1}, drafts);
  const Draft tree = drafts.find(Slot(0));
  // After 1 came 2 twice and 3 once; after "1 2" always 1.
  EXPECT_EQ(to_vector(tree.tokens), Tokens({2, 1}));
  EXPECT_EQ(std::vector(tree.parents.begin(), tree.parents.end()), std::vector<std::int32_t>({-1, 0}));
}

// The tree finds the end of a response that it has by itself; any other context is searched for.
TEST_F(DraftClientTest, DraftsEquallyForAResponseThatItDoesNotHave) {
  std::mt19937 random(1);
  const suffix::DraftArgs args{.max_tokens = 8, .min_prob = 0.01, .top_k = 2};
  Tokens response;
  for (int i = 0; i < 300; ++i) {
    response.push_back(static_cast<Token>(random() % 3));
    own(response);
    ASSERT_EQ(draft(kOwn, response, args), draft(kOther, response, args)) << "length " << i;
  }
}

TEST_F(DraftClientTest, SendsFullBatchesAtOnceAndTheRestWhenNothingIsNew) {
  start({.append_batch = 4});
  own(range(0, 3));
  client_->sync();
  EXPECT_TRUE(transport_.updates.empty());
  own(range(0, 6));
  client_->sync();
  ASSERT_EQ(transport_.updates.size(), 1U);
  EXPECT_EQ(transport_.updates[0].version, kVersion);
  EXPECT_EQ(last_update().previous_count, 0);
  EXPECT_EQ(to_vector(last_update().tokens), range(0, 6));
  own(range(0, 8));
  client_->sync();
  EXPECT_EQ(transport_.updates.size(), 1U);
  client_->sync();
  ASSERT_EQ(transport_.updates.size(), 2U);
  EXPECT_EQ(last_update().previous_count, 6);
  EXPECT_EQ(to_vector(last_update().tokens), range(6, 8));
}

TEST_F(DraftClientTest, SyncsInEveryPeriodOfSteps) {
  start({.fetch_period = 3, .resend_syncs = 1});
  for (int step = 1; step <= 9; ++step) {
    client_->end_step();
    EXPECT_EQ(transport_.fetches.size(), static_cast<std::size_t>(step / 3));
  }
}

TEST_F(DraftClientTest, SendsAgainFromTheCountThatAGapNames) {
  own(range(0, 20));
  client_->sync();
  own(range(0, 40));
  client_->sync();
  EXPECT_EQ(last_update().previous_count, 20);
  transport_.acknowledge(DraftOutcome::kGap, 5);
  client_->sync();
  EXPECT_EQ(last_update().previous_count, 5);
  EXPECT_EQ(to_vector(last_update().tokens), range(5, 40));
}

TEST_F(DraftClientTest, SendsAgainWhatStaysUnanswered) {
  start({.resend_syncs = 3});
  own(range(0, 20));
  client_->sync();
  transport_.acknowledge(DraftOutcome::kTaken, 20);
  own(range(0, 40));
  client_->sync();
  for (int i = 0; i < 2; ++i) client_->sync();
  EXPECT_EQ(transport_.updates.size(), 2U);
  client_->sync();
  ASSERT_EQ(transport_.updates.size(), 3U);
  EXPECT_EQ(last_update().previous_count, 20);
  EXPECT_EQ(to_vector(last_update().tokens), range(20, 40));
  transport_.acknowledge(DraftOutcome::kTaken, 40);
  for (int i = 0; i < 10; ++i) client_->sync();
  EXPECT_EQ(transport_.updates.size(), 3U);
}

TEST_F(DraftClientTest, RegistersAndSendsAgainWhenTheServerHasForgottenAGroup) {
  own(range(0, 20));
  client_->sync();
  transport_.acknowledge(DraftOutcome::kTaken, 20);
  client_->sync();
  EXPECT_EQ(transport_.registered.size(), 1U);
  transport_.replies.fetches.push_back({.version = kVersion, .number = 1, .unknown_groups = {kGroup}});
  client_->sync();
  EXPECT_EQ(transport_.registered.size(), 2U);
  ASSERT_EQ(transport_.updates.size(), 2U);
  EXPECT_EQ(last_update().previous_count, 0);
  EXPECT_EQ(to_vector(last_update().tokens), range(0, 20));
}

// A late answer of before can make it believe that the server has what is gone.
TEST_F(DraftClientTest, SendsAgainWhatAFetchShowsToBeMissing) {
  own(range(0, 20));
  client_->sync();
  transport_.acknowledge(DraftOutcome::kTaken, 20);
  transport_.deliver(kOther, 0, {1});
  client_->sync();
  EXPECT_EQ(transport_.fetches.back().counts[0].acked, 20);
  DraftFetchReply reply{.version = kVersion, .number = 2};
  reply.gaps.push_back({kGroup, kOwn, DraftOutcome::kGap, 8});
  transport_.replies.fetches.push_back(reply);
  client_->sync();
  ASSERT_EQ(transport_.updates.size(), 2U);
  EXPECT_EQ(last_update().previous_count, 8);
  EXPECT_EQ(to_vector(last_update().tokens), range(8, 20));
}

TEST_F(DraftClientTest, AsksForWhatItLacksAndHasNoEcho) {
  transport_.deliver(kOther, 0, range(50, 60));
  own(range(0, 3));
  client_->sync();
  ASSERT_EQ(transport_.fetches.size(), 1U);
  const DraftFetch& fetch = transport_.fetches[0];
  ASSERT_EQ(fetch.groups.size(), 1U);
  EXPECT_EQ(fetch.groups[0].group, kGroup);
  const auto counts = fetch.counts_of(fetch.groups[0]);
  ASSERT_EQ(counts.size(), 2U);
  EXPECT_EQ(counts[0].request, kOwn);
  EXPECT_EQ(counts[0].count, 3);
  EXPECT_EQ(counts[1].request, kOther);
  EXPECT_EQ(counts[1].count, 10);
}

TEST_F(DraftClientTest, FetchesAgainOnlyAfterAnAnswerOrALongSilence) {
  start({.resend_syncs = 3});
  for (int i = 0; i < 3; ++i) client_->sync();
  EXPECT_EQ(transport_.fetches.size(), 1U);
  client_->sync();
  EXPECT_EQ(transport_.fetches.size(), 2U);
  transport_.deliver(kOther, 0, {1});
  client_->sync();
  EXPECT_EQ(transport_.fetches.size(), 3U);
}

TEST_F(DraftClientTest, StartsTheNextFetchBehindTheLastGroupServed) {
  for (int id = 8; id <= 9; ++id) client_->register_group(GroupId(id), {});
  client_->sync();
  transport_.deliver(kOther, 0, {1});
  client_->sync();
  std::vector<GroupId> order;
  for (const auto& group : transport_.fetches.back().groups) order.push_back(group.group);
  EXPECT_EQ(order, std::vector({GroupId(8), GroupId(9), kGroup}));
}

TEST_F(DraftClientTest, TakesRepeatedAndOverlappingDeltasOnce) {
  transport_.deliver(kOther, 0, range(0, 10));
  transport_.deliver(kOther, 0, range(0, 10));
  transport_.deliver(kOther, 5, range(5, 15));
  client_->sync();
  EXPECT_EQ(tokens(kOther), range(0, 15));
  EXPECT_EQ(client_->stats().fetched_tokens, 15);
}

TEST_F(DraftClientTest, DropsDeltasThatLeaveAGap) {
  transport_.deliver(kOther, 3, range(3, 10));
  client_->sync();
  EXPECT_TRUE(tokens(kOther).empty());
  transport_.deliver(kOther, 0, range(0, 3));
  transport_.deliver(kOther, 4, range(4, 10));
  client_->sync();
  EXPECT_EQ(tokens(kOther), range(0, 3));
}

TEST_F(DraftClientTest, DropsDeltasThatContradict) {
  transport_.deliver(kOther, 0, {1, 2, 3});
  transport_.deliver(kOther, 0, {1, 9, 3, 4});
  client_->sync();
  EXPECT_EQ(tokens(kOther), Tokens({1, 2, 3}));
  EXPECT_EQ(client_->stats().contradictions, 1);
}

TEST_F(DraftClientTest, DropsWhatIsOfAnotherPolicyVersion) {
  own(range(0, 20));
  transport_.deliver(kOther, 0, {1, 2}, PolicyVersion(2));
  client_->sync();
  EXPECT_TRUE(tokens(kOther).empty());
  client_->drop_all(PolicyVersion(4));
  EXPECT_EQ(client_->num_groups(), 0U);
  EXPECT_EQ(client_->memory_bytes(), 0U);
  client_->register_group(kGroup, {});
  EXPECT_TRUE(tokens(kOwn).empty());
  transport_.deliver(kOther, 0, {1, 2});
  client_->sync();
  EXPECT_TRUE(tokens(kOther).empty());
  EXPECT_EQ(transport_.fetches.back().version, PolicyVersion(4));

  own(range(100, 120));
  transport_.acknowledge(DraftOutcome::kTaken, 20);
  client_->sync();
  ASSERT_EQ(transport_.updates.size(), 2U);
  EXPECT_EQ(to_vector(last_update().tokens), range(100, 120));
}

TEST_F(DraftClientTest, IgnoresAForgottenGroup) {
  own(range(0, 20));
  client_->forget_group(kGroup);
  EXPECT_EQ(client_->memory_bytes(), 0U);
  own(range(0, 30));
  transport_.deliver(kOther, 0, {1});
  client_->sync();
  EXPECT_TRUE(transport_.fetches.empty());
  EXPECT_TRUE(transport_.updates.empty());
  EXPECT_EQ(client_->num_groups(), 0U);
}

TEST_F(DraftClientTest, TakesOverAResponseThatItKnowsInPart) {
  transport_.deliver(kOwn, 0, range(0, 30));
  client_->sync();
  own(range(0, 50));
  EXPECT_EQ(tokens(kOwn), range(0, 50));
  client_->sync();
  EXPECT_EQ(last_update().previous_count, 30);  // the server has these
  EXPECT_EQ(to_vector(last_update().tokens), range(30, 50));
}

TEST_F(DraftClientTest, DraftsTheKnownContinuationOfAResponseGeneratedAgain) {
  const Tokens response = range(0, 60);
  transport_.deliver(kOwn, 0, response);
  client_->sync();
  own(range(0, 40));
  EXPECT_EQ(tokens(kOwn), response);
  EXPECT_EQ(draft(kOwn, range(0, 40), {.max_tokens = 5}), range(40, 45));
}

TEST_F(DraftClientTest, OwnTokensReplaceFetchedOnesThatContradict) {
  transport_.deliver(kOwn, 0, {1, 2, 3, 4});
  client_->sync();
  own({1, 2, 9});
  EXPECT_EQ(tokens(kOwn), Tokens({1, 2, 9}));
  transport_.deliver(kOwn, 3, {4});
  client_->sync();
  client_->sync();
  EXPECT_EQ(tokens(kOwn), Tokens({1, 2, 9}));
  EXPECT_TRUE(transport_.updates.empty());
  EXPECT_EQ(client_->stats().contradictions, 1);
}

TEST_F(DraftClientTest, SendsNoMoreOfAResponseThatTheServerContradicts) {
  own(range(0, 20));
  client_->sync();
  transport_.acknowledge(DraftOutcome::kContradiction, 20);
  own(range(0, 60));
  for (int i = 0; i < 20; ++i) client_->sync();
  EXPECT_EQ(transport_.updates.size(), 1U);
}

TEST_F(DraftClientTest, StopsGrowingAtTheBoundAndGoesOnWhenAGroupIsForgotten) {
  constexpr std::size_t kMax = 1 << 20;
  start({.max_bytes = kMax});
  std::mt19937 random(1);
  Tokens response(40'000);
  for (Token& token : response) token = static_cast<Token>(random() % 1000);
  own(response);
  const std::size_t held = tokens(kOwn).size();
  EXPECT_GT(held, 1000U);
  EXPECT_LT(held, response.size());
  EXPECT_LT(client_->memory_bytes(), kMax + kMax / 8);
  EXPECT_GT(client_->stats().refused_appends, 0);

  client_->register_group(GroupId(8), response);
  client_->own_tokens(GroupId(8), kOther, response);
  EXPECT_TRUE(client_->tokens(GroupId(8), kOther).empty());
  client_->sync();
  EXPECT_TRUE(transport_.fetches.empty());  // no room for what would come
  client_->forget_group(kGroup);
  client_->own_tokens(GroupId(8), kOther, response);
  EXPECT_GT(client_->tokens(GroupId(8), kOther).size(), 1000U);
}

TEST_F(DraftClientTest, BoundsEachGroup) {
  DraftClient::Config config;
  config.tree.max_bytes = 1 << 18;
  start(config);
  own(range(0, 20'000));
  EXPECT_LE(client_->memory_bytes(), std::size_t{1} << 18);
  EXPECT_GT(tokens(kOwn).size(), 100U);
}

TEST_F(DraftClientTest, RefusesSettingsThatMakeNoSense) {
  EXPECT_FALSE(DraftClient::create({.append_batch = 0}, transport_));
  EXPECT_FALSE(DraftClient::create({.fetch_period = 0}, transport_));
  EXPECT_FALSE(DraftClient::create({.resend_syncs = 0}, transport_));
  EXPECT_FALSE(DraftClient::create({.max_fetch_tokens = 0}, transport_));
  EXPECT_FALSE(DraftClient::create({.group_ttl_s = -1}, transport_));
  DraftClient::Config config;
  config.tree.max_depth = 0;
  EXPECT_FALSE(DraftClient::create(config, transport_));
}

}  // namespace
}  // namespace rondo::batch
