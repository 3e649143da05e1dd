#include "timeline/page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "timeline/page_data.h"
#include "timeline/recorder.h"

namespace rondo::timeline {
namespace {

using Json = nlohmann::json;

// Groups of four requests in two chunks each, the second on the next instance.
Timeline rollout(int groups, int instances) {
  Recorder recorder("seer <&> \"plus\"", 0, {.max_chunks = 1 << 21});
  const auto running = recorder.add_counter("running requests");
  for (int r = 0; r < groups * 4; ++r) {
    Chunk chunk{.request = RequestId(r),
                .group = GroupId(r / 4),
                .instance = InstanceId(r % instances),
                .begin_ns = r * 1'000,
                .end_ns = r * 1'000 + 4'000,
                .end_tokens = 10};
    recorder.chunk(chunk);
    chunk.instance = InstanceId((r + 1) % instances);
    chunk.begin_ns = chunk.end_ns;
    chunk.end_ns += 1'000;
    chunk.migrated = instances > 1;
    chunk.finished = true;
    recorder.chunk(chunk);
    recorder.set(running, InstanceId(r % instances), r * 1'000, r % 5);
  }
  return recorder.finish(0);
}

Json data_of(const Timeline& timeline, const PageLimits& limits = {}) {
  return Json::parse(page_data("title", std::span(&timeline, 1), limits))["timelines"][0];
}

TEST(PageTest, DataHasEveryChunkOfASmallRollout) {
  const Json t = data_of(rollout(5, 2));
  EXPECT_EQ(t["name"], "seer <&> \"plus\"");
  EXPECT_EQ(t["chunks"], 40);
  EXPECT_EQ(t["migrations"], 20);
  EXPECT_EQ(t["groups_drawn"], 5);
  EXPECT_EQ(t["requests"], 20);
  EXPECT_EQ(t["tokens"], 200);
  EXPECT_EQ(t["lanes"].size(), 2U);
  for (const char* column : {"lane", "row", "begin", "end", "request", "group", "from", "to", "flags"})
    EXPECT_EQ(t["boxes"][column].size(), 40U) << column;
  EXPECT_EQ(t["finishes"].size(), 20U);
  EXPECT_EQ(t["curves"][0]["lines"].size(), 2U);
}

TEST(PageTest, TailIsMarked) {
  const Json t = data_of(rollout(5, 2));
  std::set<int> tail;
  for (std::size_t i = 0; i < 40; ++i)
    if ((t["boxes"]["flags"][i].get<int>() & 16) != 0) tail.insert(t["boxes"]["request"][i].get<int>());
  EXPECT_EQ(tail, (std::set<int>{18, 19}));
  EXPECT_DOUBLE_EQ(t["tail_begin"], 22e-6);  // the end of request 17
}

TEST(PageTest, LargeRolloutIsDrawnInPart) {
  const Timeline timeline = rollout(125'000, 64);  // a million chunks
  const std::string text = page("large", std::span(&timeline, 1));
  EXPECT_LT(text.size(), 1'500'000U);
  const Json t = data_of(timeline);
  EXPECT_EQ(t["chunks"], 1'000'000);
  EXPECT_EQ(t["groups"], 125'000);
  EXPECT_EQ(t["lanes"].size(), 48U);
  EXPECT_GT(t["boxes"]["begin"].size(), 10'000U);
  EXPECT_LE(t["boxes"]["begin"].size(), 20'000U);
  EXPECT_EQ(t["curves"][0]["labels"], Json::parse(R"(["mean","least","most"])"));
  EXPECT_EQ(t["boxes"]["group"].back(), 124'999);  // the group that finishes last is among the drawn
}

TEST(PageTest, NamesCannotEndTheScript) {
  Timeline timeline = rollout(1, 1);
  timeline.name = "</script><b>";
  const std::string text = page("</title><script>", std::span(&timeline, 1));
  EXPECT_EQ(text.find("</script><b>"), std::string::npos);
  EXPECT_EQ(text.find("</title><script>"), std::string::npos);
  EXPECT_EQ(data_of(timeline)["name"], "</script><b>");
}

TEST(PageTest, NothingIsLoadedFromElsewhere) {
  const Timeline timeline = rollout(2, 2);
  const std::string text = page("title", std::span(&timeline, 1));
  for (const char* outside : {"http:", "https:", "src=", "@import", "url("})
    EXPECT_EQ(text.find(outside), std::string::npos) << outside;
}

TEST(PageTest, EmptyRolloutHasAPage) {
  const Json t = data_of(Timeline{.name = "none"});
  EXPECT_EQ(t["requests"], 0);
  EXPECT_EQ(t["boxes"]["begin"].size(), 0U);
}

}  // namespace
}  // namespace rondo::timeline
