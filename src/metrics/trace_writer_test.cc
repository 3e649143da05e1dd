#include "metrics/trace_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

namespace rondo::metrics {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

fs::path scratch(const char* name) {
  const fs::path folder = fs::path(testing::TempDir()) / "rondo_trace_writer_test";
  fs::create_directories(folder);
  return folder / name;
}

Json read_trace(const fs::path& path) {
  return Json::parse(read_file(path).value());
}

TEST(TraceWriterTest, WritesLanesBoxesAndArrows) {
  const fs::path path = scratch("trace.json");
  auto trace = TraceWriter::create(path, 1'000'000);
  ASSERT_TRUE(trace);
  const auto first = (*trace)->add_lane("engine", "instance 0");
  const auto second = (*trace)->add_lane("engine", "instance \"1\"");
  const auto train = (*trace)->add_lane("train", "unit");
  (*trace)->complete(first, "decode", 1'001'234, 1'003'000,
                     {{"rows", std::int64_t{4}}, {"share", 0.5}, {"kind", std::string_view("greedy")}});
  (*trace)->flow("group 3", first, 1'002'000, train, 1'004'000);
  ASSERT_TRUE((*trace)->finish());

  const Json events = read_trace(path);
  ASSERT_EQ(events.size(), 8u);
  EXPECT_EQ(events[0],
            Json::parse(R"({"ph":"M","name":"process_name","pid":0,"tid":1,"args":{"name":"engine"}})"));
  EXPECT_EQ(events[2]["args"]["name"], "instance \"1\"");
  EXPECT_EQ(second.process, first.process);
  EXPECT_EQ(events[3]["args"]["name"], "train");
  EXPECT_EQ(events[5], Json::parse(R"({"ph":"X","name":"decode","pid":0,"tid":1,"ts":1.234,"dur":1.766,
                                       "args":{"rows":4,"share":0.5,"kind":"greedy"}})"));
  EXPECT_EQ(events[6]["ph"], "s");
  EXPECT_EQ(events[7]["ph"], "f");
  EXPECT_EQ(events[6]["id"], events[7]["id"]);
  EXPECT_EQ(events[7]["pid"], train.process);
  EXPECT_EQ(events[7]["ts"], 4.0);
}

TEST(TraceWriterTest, TimesBeforeTheOriginAreNegative) {
  const fs::path path = scratch("negative.json");
  auto trace = TraceWriter::create(path, 2'000);
  ASSERT_TRUE(trace);
  const auto lane = (*trace)->add_lane("p", "l");
  (*trace)->complete(lane, "early", 500, 2'000);
  ASSERT_TRUE((*trace)->finish());
  EXPECT_EQ(read_trace(path)[2]["ts"], -1.5);
}

TEST(TraceWriterTest, CountersBelongToTheGroup) {
  const fs::path path = scratch("counter.json");
  auto trace = TraceWriter::create(path, 1'000);
  ASSERT_TRUE(trace);
  (*trace)->counter((*trace)->add_lane("engine", "row 0"), "KV", 3'000, 0.5);
  ASSERT_TRUE((*trace)->finish());
  EXPECT_EQ(read_trace(path)[2],
            Json::parse(R"({"ph":"C","name":"KV","pid":0,"tid":1,"ts":2.0,"args":{"value":0.5}})"));
}

TEST(TraceWriterTest, EmptyTraceIsAnEmptyArray) {
  const fs::path path = scratch("empty.json");
  ASSERT_TRUE((*TraceWriter::create(path, 0))->finish());
  EXPECT_EQ(read_trace(path), Json::array());
}

TEST(TraceWriterTest, ThreadsMayWriteAtOnce) {
  const fs::path path = scratch("threads.json");
  constexpr int kThreads = 4;
  constexpr int kEvents = 500;
  {
    auto trace = TraceWriter::create(path, 0);
    ASSERT_TRUE(trace);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&writer = **trace, t] {
        const auto lane = writer.add_lane("workers", std::to_string(t));
        for (int i = 0; i < kEvents; ++i) writer.complete(lane, "task", i, i + 1);
      });
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(read_trace(path).size(), std::size_t{1 + kThreads * (1 + kEvents)});
}

TEST(TraceWriterTest, FullDiskIsReportedAtTheEnd) {
  auto trace = TraceWriter::create("/dev/full", 0);
  ASSERT_TRUE(trace);
  const auto lane = (*trace)->add_lane("p", "l");
  for (int i = 0; i < 5'000; ++i) (*trace)->complete(lane, "task", i, i + 1);
  const auto finished = (*trace)->finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace rondo::metrics
