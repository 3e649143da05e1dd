#include "timeline/chrome_trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "timeline/recorder.h"

namespace rondo::timeline {
namespace {

using Json = nlohmann::json;

Timeline two_instances() {
  Recorder recorder("seer", 1'000);
  const auto kv = recorder.add_counter("KV in use, %");
  recorder.set(kv, InstanceId(0), 1'000, 50.0);
  recorder.chunk({.request = RequestId(4),
                  .group = GroupId(0),
                  .instance = InstanceId(0),
                  .begin_ns = 1'000,
                  .end_ns = 3'000,
                  .end_tokens = 8});
  recorder.chunk({.request = RequestId(5),
                  .group = GroupId(0),
                  .instance = InstanceId(0),
                  .begin_ns = 2'000,
                  .end_ns = 3'500,
                  .end_tokens = 8});
  recorder.chunk({.request = RequestId(4),
                  .group = GroupId(0),
                  .instance = InstanceId(1),
                  .begin_ns = 4'000,
                  .end_ns = 6'000,
                  .begin_tokens = 8,
                  .end_tokens = 11,
                  .origin = KvOrigin::kMoved,
                  .migrated = true,
                  .finished = true});
  return recorder.finish(6'000);
}

std::vector<Json> events_of(const Json& trace, const char* phase) {
  std::vector<Json> events;
  for (const Json& event : trace)
    if (event["ph"] == phase) events.push_back(event);
  return events;
}

TEST(ChromeTraceTest, LanesArrowsAndCounters) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "rondo_chrome_trace.json";
  ASSERT_TRUE(write_chrome_trace(path, two_instances()));
  const Json trace = Json::parse(read_file(path).value());
  const auto boxes = events_of(trace, "X");
  ASSERT_EQ(boxes.size(), 3U);
  EXPECT_NE(boxes[0]["tid"], boxes[1]["tid"]);  // at one time on one instance
  EXPECT_EQ(boxes[0]["pid"], boxes[1]["pid"]);
  EXPECT_NE(boxes[0]["pid"], boxes[2]["pid"]);
  EXPECT_EQ(boxes[2]["args"]["kv"], "moved");
  EXPECT_EQ(boxes[2]["args"]["to_token"], 11);
  const auto from = events_of(trace, "s"), to = events_of(trace, "f");
  ASSERT_EQ(from.size(), 1U);
  ASSERT_EQ(to.size(), 1U);
  EXPECT_EQ(from[0]["pid"], boxes[0]["pid"]);
  EXPECT_LT(from[0]["ts"], 2.0);  // inside of the box that it leaves
  EXPECT_EQ(to[0]["pid"], boxes[2]["pid"]);
  EXPECT_EQ(to[0]["ts"], 3.0);
  const auto counters = events_of(trace, "C");
  ASSERT_EQ(counters.size(), 5U);
  EXPECT_EQ(counters[0]["name"], "KV in use, %");
  EXPECT_EQ(counters[0]["args"]["value"], 50.0);
}

TEST(ChromeTraceTest, EmptyTimelineIsATrace) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "rondo_chrome_empty.json";
  ASSERT_TRUE(write_chrome_trace(path, Timeline{}));
  EXPECT_EQ(Json::parse(read_file(path).value()), Json::array());
}

}  // namespace
}  // namespace rondo::timeline
