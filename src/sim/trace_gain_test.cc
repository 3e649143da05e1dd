#include "sim/trace_gain.h"

#include <gtest/gtest.h>

#include <random>

namespace rondo::sim {
namespace {

// Groups of `size` responses; each is `share` copied from its group's text, the rest random.
Trace make_trace(int groups, int size, double share) {
  std::mt19937_64 random(5);
  const auto token = [&random] { return static_cast<Token>(random() % 50000); };
  Trace trace;
  for (int g = 0; g < groups; ++g) {
    std::vector<Token> text(400);
    for (Token& t : text) t = token();
    rollout::GroupSpec group{.id = GroupId(g), .prompt_tokens = 10, .samples = {}};
    for (int s = 0; s < size; ++s) {
      std::vector<Token> response = text;
      for (Token& t : response) {
        if (static_cast<double>(random() % 1000) >= 1000.0 * share) t = token();
      }
      group.samples.push_back(
          {.id = RequestId(std::ssize(trace.tokens)), .max_new_tokens = 400, .true_tokens = 400});
      trace.tokens.push_back(std::move(response));
    }
    trace.groups.push_back(std::move(group));
  }
  return trace;
}

TEST(TraceGain, EqualSiblingsAreDraftedWhole) {
  const auto gain = measure_gain(make_trace(2, 3, 1.0));
  ASSERT_TRUE(gain);
  EXPECT_LT(gain->tokens(lane_of(false, 0), 8, 1), 1.05);  // nothing of its own repeats
  EXPECT_GT(gain->tokens(lane_of(false, 1), 8, 1), 8.0);   // the first token finds no context
}

// A token is the sibling's with the chance that both have kept it.
TEST(TraceGain, AcceptanceIsTheShareThatSiblingsHaveInCommon) {
  const auto gain = measure_gain(make_trace(8, 3, 0.95));
  ASSERT_TRUE(gain);
  EXPECT_NEAR(gain->acceptance(lane_of(false, 1), 4, 1), 0.95 * 0.95, 0.03);
  EXPECT_GE(gain->tokens(lane_of(false, 2), 8, 1), gain->tokens(lane_of(false, 1), 8, 1));
}

TEST(TraceGain, UnrelatedResponsesGainNothing) {
  const auto gain = measure_gain(make_trace(4, 4, 0.0));
  ASSERT_TRUE(gain);
  EXPECT_LT(gain->tokens(lane_of(false, 3), 8, 1), 1.05);
}

TEST(TraceGain, NeedsTokens) {
  Trace trace = make_trace(1, 2, 1.0);
  trace.tokens.clear();
  EXPECT_FALSE(measure_gain(trace));
}

}  // namespace
}  // namespace rondo::sim
