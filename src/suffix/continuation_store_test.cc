#include "suffix/continuation_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace rondo::suffix {
namespace {

// The naive model of one list: what it holds, by token.
using Model = std::map<Token, Continuation>;

std::vector<Continuation> sorted(const Model& model) {
  std::vector<Continuation> result;
  for (const auto& [token, entry] : model) result.push_back(entry);
  std::ranges::sort(result, ranks_before);
  return result;
}

void expect_equal(const ContinuationStore& store, const ContinuationList& list, const Model& model) {
  const auto want = sorted(model);
  ASSERT_EQ(store.entries(list), want);
  for (std::int32_t rank = 0; rank < kMaxRanked; ++rank) {
    const Continuation* got = store.ranked(list, rank);
    ASSERT_EQ(got != nullptr, static_cast<std::size_t>(rank) < want.size());
    if (got != nullptr) {
      ASSERT_EQ(*got, want[static_cast<std::size_t>(rank)]);
    }
  }
  for (const auto& [token, entry] : model) ASSERT_EQ(*store.find(list, token), entry);
}

// Lists grow through all representations and shrink back, some by clones.
TEST(ContinuationStoreTest, EqualsTheNaiveModelAfterEveryOperation) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t bound) { return random() % bound; };
    ContinuationStore store;
    std::vector<ContinuationList> lists(3);
    std::vector<Model> models(3);
    const std::size_t num_tokens = 2 + below(60);
    for (int operation = 0; operation < 400; ++operation) {
      const std::size_t at = below(lists.size());
      const auto token = static_cast<Token>(below(num_tokens));
      const std::size_t kind = below(100);
      // Mostly growth first, mostly shrinking later.
      const bool is_raise = kind < (operation < 200 ? 65U : 30U);
      Continuation* entry = store.find(lists[at], token);
      ASSERT_EQ(entry != nullptr, models[at].contains(token));
      if (kind == 99) {
        const std::size_t to = (at + 1) % lists.size();
        store.clear(lists[to]);
        lists[to] = store.clone(lists[at]);
        models[to] = models[at];
      } else if (is_raise && entry == nullptr) {
        store.add(lists[at], token, static_cast<NodeId>(operation));
        models[at][token] = {.token = token, .count = 1, .target = static_cast<NodeId>(operation)};
      } else if (is_raise) {
        store.increment(lists[at], *entry);
        ++models[at][token].count;
      } else if (entry != nullptr) {
        store.decrement(lists[at], *entry);
        if (--models[at][token].count == 0) models[at].erase(token);
      }
      for (std::size_t i = 0; i < lists.size(); ++i)
        ASSERT_NO_FATAL_FAILURE(expect_equal(store, lists[i], models[i]));
    }
    for (ContinuationList& list : lists) store.clear(list);
    EXPECT_EQ(store.num_rests(), 0U);
  }
}

TEST(ContinuationStoreTest, StaysWithinItsGrowthBound) {
  ContinuationStore store;
  std::vector<ContinuationList> lists(20);
  for (Token token = 0; token < 3000; ++token) {
    const std::size_t bound = store.bytes() + store.growth_bound(lists.size() + 1, lists[0]);
    ContinuationList clone = store.clone(lists[1]);
    for (ContinuationList& list : lists) store.add(list, token, 0);
    store.add(clone, token, 0);
    ASSERT_LE(store.bytes(), bound);
    store.clear(clone);
  }
}

TEST(ContinuationStoreDeathTest, SameTokenTwiceInATableIsABug) {
  ContinuationTable table;
  table.insert({.token = 3, .count = 1, .target = 0});
  EXPECT_DEATH(table.insert({.token = 3, .count = 1, .target = 0}), "slot.count");
}

}  // namespace
}  // namespace rondo::suffix
