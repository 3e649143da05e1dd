// Random changes against sorted lists.
#include "rollout/waiting_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace rondo::rollout {
namespace {

TEST(WaitingQueueTest, AgreesWithSortedLists) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    WaitingQueue queue;
    std::map<RequestSlot, Priority> priorities;
    std::vector<RequestSlot> by_age;
    for (int step = 0; step < 400; ++step) {
      const RequestSlot slot(static_cast<std::int32_t>(random() % 60));
      const Priority priority{.rank = static_cast<std::int64_t>(random() % 10),
                              .generated = static_cast<std::int32_t>(random() % 3),
                              .arrival = slot.value()};
      if (!priorities.contains(slot)) {
        queue.push(slot, priority);
        by_age.push_back(slot);
        priorities[slot] = priority;
      } else if (random() % 2 == 0) {
        queue.update(slot, priority);
        priorities[slot] = priority;
      } else {
        queue.erase(slot);
        std::erase(by_age, slot);
        priorities.erase(slot);
      }
      queue.check_invariants();
      std::vector<RequestSlot> order = by_age;
      std::ranges::sort(order, {}, [&](RequestSlot s) { return priorities.at(s); });
      ASSERT_EQ(queue.first(1000), order);
      ASSERT_EQ(queue.empty(), order.empty());
      if (order.empty()) continue;
      EXPECT_EQ(queue.best(), order.front());
      EXPECT_EQ(queue.oldest(), by_age.front());
      EXPECT_EQ(queue.first(1).size(), 1U);
    }
  }
}

}  // namespace
}  // namespace rondo::rollout
