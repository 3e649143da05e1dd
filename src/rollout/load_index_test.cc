// Random changes against a plain scan.
#include "rollout/load_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>

namespace rondo::rollout {
namespace {

struct Numbers {
  std::int64_t load = 0;
  std::int64_t room = 0;
};
using Model = std::map<InstanceId, Numbers>;

std::optional<InstanceId> scan(const Model& model, std::int64_t need) {
  std::optional<InstanceId> best;
  for (const auto& [id, numbers] : model) {
    if (numbers.room >= need && (!best || numbers.load < model.at(*best).load)) best = id;
  }
  return best;
}

std::pair<std::int64_t, std::int64_t> least_and_greatest(const Model& model) {
  if (model.empty()) return {0, 0};
  const auto [least, most] =
      std::ranges::minmax_element(model, {}, [](const auto& item) { return item.second.load; });
  return {least->second.load, most->second.load};
}

TEST(LoadIndexTest, AgreesWithAScan) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&random](unsigned bound) { return static_cast<std::int32_t>(random() % bound); };
    const auto num_ids = static_cast<unsigned>(1 + draw(40));
    LoadIndex index;
    Model model;
    for (int step = 0; step < 500; ++step) {
      const InstanceId id(draw(num_ids));
      if (draw(4) == 0) {
        index.erase(id);
        model.erase(id);
      } else {
        model[id] = {.load = draw(6), .room = draw(20) - 1};
        index.set(id, model[id].load, model[id].room);
      }
      index.check_invariants();
      EXPECT_EQ(index.empty(), model.empty());
      EXPECT_EQ(std::pair(index.least(), index.greatest()), least_and_greatest(model));
      for (const int need : {0, 5, 18, 19}) EXPECT_EQ(index.least_loaded(need), scan(model, need));
    }
  }
}

}  // namespace
}  // namespace rondo::rollout
