// What leaves, and where to, on cases worked out by hand.
#include "rollout/kv_ledger.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace rondo::rollout {
namespace {

const InstanceId kOnly(0);
constexpr KvPlace kHere{KvTier::kInstance, InstanceId(0)};
constexpr KvPlace kHost{KvTier::kHost, InstanceId()};
constexpr KvPlace kDisk{KvTier::kDisk, InstanceId()};

// Request r of group g parks ten blocks that are served in the order of r, unless told otherwise.
class KvLedgerTest : public testing::Test {
 protected:
  void make(const KvLedger::Limits& limits, std::int64_t num_blocks) {
    ledger_.emplace(limits);
    ledger_->add_instance({kOnly, num_blocks, 100});
  }
  void add_group(int group, int prompt_tokens) { ledger_->add_group(GroupSlot(group), prompt_tokens); }
  void park(int request, int group, int blocks = 10) {
    const RequestSlot slot(request);
    ledger_->add_request(slot, GroupSlot(group));
    ledger_->start(slot, kOnly, blocks + 1);
    ledger_->park(slot, 64 * blocks, blocks, {.rank = request});
    ledger_->check_invariants(/*reserved=*/true);
  }
  // The request computes its group's prompt, and ends.
  void run_and_release(int request, int group) {
    const RequestSlot slot(request);
    ledger_->add_request(slot, GroupSlot(group));
    ledger_->start(slot, kOnly, 1);
    ledger_->chunk_ended(slot);
    ledger_->release(slot);
  }
  // The prompt of a new group 0, three blocks, is in the host for its requests 1 …, which have not started;
  // nothing else is on the instance. Request 9 is of another group.
  void store_a_prompt(int num_unstarted) {
    add_group(0, 130);
    run_and_release(0, 0);
    for (int r = 1; r <= num_unstarted; ++r) ledger_->add_request(RequestSlot(r), GroupSlot(0));
    add_group(9, 1);
    ledger_->add_request(RequestSlot(9), GroupSlot(9));
    make_room(40, 9);
    ASSERT_TRUE(ledger_->prompt_is_stored(GroupSlot(0)));
  }
  // Requests 5 and 6, ten blocks each, leave for a host that has no room for both, and for the disk.
  void store_two_requests() {
    for (const int g : {5, 6, 7}) add_group(g, 1);
    for (const int r : {5, 6}) park(r, r);
    ledger_->add_request(RequestSlot(7), GroupSlot(7));
    make_room(40, 7);
    ASSERT_TRUE(ledger_->holding(RequestSlot(5)).place == kHost);
    ASSERT_TRUE(ledger_->holding(RequestSlot(6)).place == kDisk);
  }
  std::vector<SlotEviction> make_room(std::int64_t blocks, int keep) {
    const auto evictions = ledger_->plan_evictions(kOnly, blocks, RequestSlot(keep));
    for (const SlotEviction& eviction : evictions) ledger_->evict(eviction);
    ledger_->check_invariants(/*reserved=*/true);
    EXPECT_GE(ledger_->free_blocks(kOnly), blocks);
    return evictions;
  }
  static SlotEviction moved(int request, int group, const KvPlace& from, const KvPlace& to) {
    return {RequestSlot(request), GroupSlot(group), from, to};
  }
  static SlotEviction dropped_prompt(int group) { return {RequestSlot(), GroupSlot(group), kHere, {}}; }

  std::optional<KvLedger> ledger_;
};

using Evictions = std::vector<SlotEviction>;

TEST_F(KvLedgerTest, NothingLeavesWhileThereIsRoom) {
  make({.host_blocks = 100}, 25);
  add_group(0, 1);
  park(0, 0);
  EXPECT_EQ(make_room(15, 0), Evictions{});
}

TEST_F(KvLedgerTest, TheLastServedLeavesFirstAndTheKeptOneStays) {
  make({.host_blocks = 100}, 40);
  for (int g = 0; g < 4; ++g) add_group(g, 1);
  for (const int r : {2, 0, 3, 1}) park(r, r, r == 1 ? 9 : 10);
  EXPECT_EQ(make_room(15, 3), (Evictions{moved(1, 1, kHere, kHost), moved(2, 2, kHere, kHost)}));
  EXPECT_EQ(ledger_->blocks_used(KvTier::kHost), 19);
  EXPECT_TRUE(ledger_->holding(RequestSlot(2)).place == kHost);
}

TEST_F(KvLedgerTest, AFullHostSpillsToDiskAndAFullDiskDrops) {
  make({.host_blocks = 20, .disk_blocks = 10}, 40);
  for (int g = 0; g < 8; ++g) add_group(g, 1);
  for (const int r : {1, 2, 3, 5}) park(r, r);
  // 5 and 3 go to the host; then 2 displaces 5 there; then 1 displaces 3, and that displaces 5 on disk.
  EXPECT_EQ(make_room(20, 1), (Evictions{moved(3, 3, kHere, kHost), moved(5, 5, kHere, kHost)}));
  EXPECT_EQ(make_room(30, 1), (Evictions{moved(5, 5, kHost, kDisk), moved(2, 2, kHere, kHost)}));
  park(7, 7, 9);
  EXPECT_EQ(make_room(31, 7),
            (Evictions{moved(5, 5, kDisk, {}), moved(3, 3, kHost, kDisk), moved(1, 1, kHere, kHost)}));
  EXPECT_EQ(ledger_->blocks_used(KvTier::kHost), 20);
  EXPECT_EQ(ledger_->blocks_used(KvTier::kDisk), 10);
}

TEST_F(KvLedgerTest, LittleKvIsDropped) {
  make({.host_blocks = 100, .disk_blocks = 100, .min_kept_tokens = 640}, 30);
  for (int g = 0; g < 2; ++g) add_group(g, 1);
  park(0, 0, 10);
  park(1, 1, 11);
  EXPECT_EQ(make_room(20, 0), (Evictions{moved(1, 1, kHere, kHost)}));
}

TEST_F(KvLedgerTest, IdlePromptsLeaveBeforeRequestsAndAPromptLeavesWithItsLastSample) {
  make({.host_blocks = 100}, 40);
  add_group(0, 129);  // two full blocks and nothing started
  add_group(1, 130);  // two full blocks and a started one
  add_group(2, 65);   // one
  park(0, 0);
  park(1, 1);
  park(2, 1);
  ledger_->release(RequestSlot(0));
  EXPECT_TRUE(ledger_->has_prompt(GroupSlot(0), kOnly));
  EXPECT_EQ(ledger_->free_blocks(kOnly), 40 - 20 - 2 - 2);
  ledger_->add_request(RequestSlot(9), GroupSlot(2));
  EXPECT_EQ(make_room(17, 9), (Evictions{dropped_prompt(0)}));
  EXPECT_EQ(make_room(19, 9), (Evictions{moved(2, 1, kHere, kHost)}));
  EXPECT_TRUE(ledger_->has_prompt(GroupSlot(1), kOnly));
  EXPECT_EQ(make_room(40, 9), (Evictions{moved(1, 1, kHere, kHost), dropped_prompt(1)}));
}

TEST_F(KvLedgerTest, APromptThatSamplesStillNeedGoesToTheHost) {
  const auto stored = [](int group) { return SlotEviction{RequestSlot(), GroupSlot(group), kHere, kHost}; };
  make({.host_blocks = 4, .min_kept_tokens = 100}, 40);
  add_group(0, 130);  // wanted, three blocks
  add_group(1, 130);  // all its samples have run
  add_group(2, 90);   // wanted, but sooner computed than moved
  add_group(3, 130);  // wanted, and no room for it
  add_group(4, 1);
  for (const int g : {0, 1, 2, 3}) {
    run_and_release(g, g);
    if (g != 1) ledger_->add_request(RequestSlot(10 + g), GroupSlot(g));
  }
  ledger_->add_request(RequestSlot(9), GroupSlot(4));
  EXPECT_EQ(make_room(40, 9),
            (Evictions{stored(0), dropped_prompt(1), dropped_prompt(2), dropped_prompt(3)}));
  EXPECT_TRUE(ledger_->prompt_is_stored(GroupSlot(0)));
  EXPECT_EQ(ledger_->blocks_used(KvTier::kHost), 3);
  ledger_->remove_group(GroupSlot(0));
  EXPECT_EQ(ledger_->blocks_used(KvTier::kHost), 0);
}

TEST_F(KvLedgerTest, APromptInTheHostGivesWayToARequest) {
  make({.host_blocks = 12}, 40);
  store_a_prompt(1);
  add_group(5, 1);
  park(5, 5);
  EXPECT_EQ(make_room(40, 9),
            (Evictions{{RequestSlot(), GroupSlot(0), kHost, {}}, moved(5, 5, kHere, kHost)}));
  EXPECT_FALSE(ledger_->prompt_is_stored(GroupSlot(0)));
}

TEST_F(KvLedgerTest, APromptInTheHostGivesWayToARequestFromDisk) {
  make({.host_blocks = 10, .disk_blocks = 20}, 40);
  store_two_requests();
  ledger_->release(RequestSlot(5));
  store_a_prompt(1);
  const Evictions moves = ledger_->plan_return_to_host(RequestSlot(6));
  EXPECT_EQ(moves, (Evictions{{RequestSlot(), GroupSlot(0), kHost, {}}, moved(6, 6, kDisk, kHost)}));
  for (const SlotEviction& move : moves) ledger_->evict(move);
  ledger_->check_invariants(/*reserved=*/true);
  EXPECT_EQ(ledger_->blocks_used(KvTier::kHost), 10);
}

TEST_F(KvLedgerTest, APromptLeavesTheHostWithTheLastSampleToStart) {
  make({.host_blocks = 10}, 40);
  store_a_prompt(2);
  ledger_->start(RequestSlot(1), kOnly, 3);
  EXPECT_TRUE(ledger_->prompt_is_stored(GroupSlot(0)));
  ledger_->start(RequestSlot(2), kOnly, 3);
  EXPECT_FALSE(ledger_->prompt_is_stored(GroupSlot(0)));
  EXPECT_EQ(ledger_->blocks_used(KvTier::kHost), 0);
  ledger_->check_invariants(/*reserved=*/true);
}

TEST_F(KvLedgerTest, APromptThatLiesElsewhereOrIsNotComputedIsDropped) {
  make({.host_blocks = 100}, 40);
  const InstanceId other(1);
  ledger_->add_instance({other, 40, 100});
  add_group(0, 130);
  add_group(1, 130);
  add_group(2, 1);
  run_and_release(0, 0);
  for (const int r : {1, 2}) ledger_->add_request(RequestSlot(r), GroupSlot(0));
  ledger_->start(RequestSlot(1), other, 3);
  for (const int r : {3, 4}) ledger_->add_request(RequestSlot(r), GroupSlot(1));
  ledger_->start(RequestSlot(3), kOnly, 3);
  ledger_->release(RequestSlot(3));
  ledger_->add_request(RequestSlot(9), GroupSlot(2));
  EXPECT_EQ(make_room(40, 9), (Evictions{dropped_prompt(0), dropped_prompt(1)}));
}

// The first instance sends two requests and a prompt away.
class KvLedgerFailureTest : public KvLedgerTest {
 protected:
  void send_away() {
    make({.host_blocks = 13, .disk_blocks = 10}, 40);
    ledger_->add_instance({kOther, 40, 100});
    add_group(0, 130);
    run_and_release(0, 0);
    ledger_->add_request(RequestSlot(1), GroupSlot(0));
    store_two_requests();
    expect_kept(true);
  }
  void start_and_end_chunk(int request, InstanceId id) {
    ledger_->start(RequestSlot(request), id, 5);
    ledger_->chunk_ended(RequestSlot(request));
  }
  void fail(InstanceId id) {
    ledger_->remove_instance(id);
    ledger_->check_invariants(/*reserved=*/true);
  }
  void expect_kept(bool kept) {
    EXPECT_TRUE(ledger_->holding(RequestSlot(5)).place == (kept ? kHost : KvPlace{}));
    EXPECT_TRUE(ledger_->holding(RequestSlot(6)).place == (kept ? kDisk : KvPlace{}));
    EXPECT_EQ(ledger_->prompt_is_stored(GroupSlot(0)), kept);
    EXPECT_EQ(ledger_->blocks_used(KvTier::kHost), kept ? 13 : 0);
    EXPECT_EQ(ledger_->blocks_used(KvTier::kDisk), kept ? 10 : 0);
  }

  const InstanceId kOther = InstanceId(1);
};

TEST_F(KvLedgerFailureTest, WhatIsUnderWayIsLostWithItsInstance) {
  send_away();
  fail(kOnly);
  expect_kept(false);
}

TEST_F(KvLedgerFailureTest, AChunkThatStartedLaterSaysThatItHasArrived) {
  send_away();
  start_and_end_chunk(7, kOnly);
  fail(kOnly);
  expect_kept(true);
}

TEST_F(KvLedgerFailureTest, AChunkElsewhereSaysNothing) {
  send_away();
  start_and_end_chunk(7, kOther);
  fail(kOnly);
  expect_kept(false);
}

TEST_F(KvLedgerFailureTest, AChunkThatStartedEarlierSaysNothing) {
  make({.host_blocks = 10}, 40);
  for (const int g : {0, 1}) add_group(g, 1);
  ledger_->add_request(RequestSlot(1), GroupSlot(1));
  ledger_->start(RequestSlot(1), kOnly, 5);
  park(0, 0);
  make_room(35, 1);
  EXPECT_EQ(ledger_->blocks_used(KvTier::kHost), 10);
  ledger_->chunk_ended(RequestSlot(1));
  fail(kOnly);
  EXPECT_EQ(ledger_->blocks_used(KvTier::kHost), 0);
}

TEST_F(KvLedgerFailureTest, NeitherAnothersFailureNorASecondOneTakesWhatHasArrived) {
  send_away();
  fail(kOther);
  expect_kept(true);
  start_and_end_chunk(7, kOnly);
  for (int life = 0; life < 2; ++life) {
    fail(kOnly);
    expect_kept(true);
    ledger_->add_instance({kOnly, 40, 100});
  }
}

TEST_F(KvLedgerTest, AStartTakesTheIdlePromptOver) {
  make({}, 12);
  add_group(0, 130);
  park(0, 0, 4);
  ledger_->release(RequestSlot(0));
  EXPECT_EQ(ledger_->free_blocks(kOnly), 12 - 3);
  ledger_->add_request(RequestSlot(1), GroupSlot(0));
  // Two shared blocks and ten of its own: all there is, and the started block is among its own.
  EXPECT_EQ(ledger_->plan_evictions(kOnly, 10, RequestSlot(1)), Evictions{});
  ledger_->start(RequestSlot(1), kOnly, 10);
  ledger_->check_invariants(/*reserved=*/true);
  EXPECT_EQ(ledger_->free_blocks(kOnly), 0);
  EXPECT_EQ(ledger_->room(kOnly), 0);
}

TEST_F(KvLedgerTest, InstancesTakeTurnsByIdAndForgetTheirKv) {
  make({}, 50);
  ledger_->add_instance({InstanceId(3), 70, 2});
  EXPECT_EQ(ledger_->next_instance(InstanceId()), kOnly);
  EXPECT_EQ(ledger_->next_instance(kOnly), InstanceId(3));
  EXPECT_EQ(ledger_->next_instance(InstanceId(3)), kOnly);
  EXPECT_EQ(ledger_->largest_instance(), 70);
  add_group(0, 65);
  park(0, 0);
  ledger_->add_request(RequestSlot(1), GroupSlot(0));
  ledger_->start(RequestSlot(1), kOnly, 3);
  EXPECT_TRUE(ledger_->prompt_is_pinned(GroupSlot(0), kOnly));
  EXPECT_EQ(ledger_->remove_instance(kOnly), (std::vector{RequestSlot(1)}));
  ledger_->check_invariants(/*reserved=*/true);
  EXPECT_FALSE(ledger_->has_prompt(GroupSlot(0), kOnly));
  EXPECT_TRUE(ledger_->holding(RequestSlot(0)).place == KvPlace{});
  EXPECT_EQ(ledger_->num_instances(), 1);
}

}  // namespace
}  // namespace rondo::rollout
