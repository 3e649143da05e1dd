#include "metrics/json_row.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace rondo::metrics {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Any bit pattern that is a number.
double any_finite_double() {
  const auto bits = *rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<std::uint64_t>());
  const auto value = std::bit_cast<double>(bits);
  RC_PRE(std::isfinite(value));
  return value;
}

TEST(JsonRowTest, WritesNamesInOrderAndListsTheMeasured) {
  StepRecord record;
  record.set("reward/mean", 0.41);
  record.set("num_tokens", 7);
  record.set("timing_s/gen", 1.0, Nature::kMeasured);
  record.set("perf/throughput", 2.5, Nature::kMeasured);
  EXPECT_EQ(json_row(3, record),
            R"({"step":3,"reward/mean":0.41,"num_tokens":7,"timing_s/gen":1.0,"perf/throughput":2.5,)"
            R"("measured":["timing_s/gen","perf/throughput"]})");
  EXPECT_EQ(json_row(0, StepRecord()), R"({"step":0})");
}

TEST(JsonRowTest, NumbersThatJsonLacksAreStrings) {
  EXPECT_EQ(json_number(std::nan("")), "\"NaN\"");
  EXPECT_EQ(json_number(kInf), "\"Infinity\"");
  EXPECT_EQ(json_number(-kInf), "\"-Infinity\"");
}

TEST(JsonRowTest, DoublesKeepAPointOrAnExponent) {
  EXPECT_EQ(json_number(1), "1.0");
  EXPECT_EQ(json_number(-0.0), "-0.0");
  EXPECT_EQ(json_number(5e-6), "5e-06");
  EXPECT_EQ(json_number(1e22), "1e+22");
  EXPECT_EQ(json_number(0.1 + 0.2), "0.30000000000000004");
}

RC_GTEST_PROP(JsonRowTest, DoublesReadBackToTheSameBits, ()) {
  const double value = any_finite_double();
  const std::string text = json_number(value);
  RC_ASSERT(nlohmann::json::accept(text));
  double read = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), read);
  RC_ASSERT(error == std::errc());
  RC_ASSERT(end == text.data() + text.size());
  RC_ASSERT(std::bit_cast<std::uint64_t>(read) == std::bit_cast<std::uint64_t>(value));
}

RC_GTEST_PROP(JsonRowTest, AnyNameGivesValidJson, (const std::string& name)) {
  RC_PRE(name != "step" && name != "measured");
  StepRecord record;
  record.set(name, std::nan(""), Nature::kMeasured);
  RC_ASSERT(nlohmann::json::accept(json_row(1, record)));
}

TEST(JsonRowTest, ReadsTheStepOfARow) {
  EXPECT_EQ(step_of_row(R"({"a":[1],"step":12})").value(), 12);
  for (const char* line : {"", "{", "[1]", "3", R"({"a":1})", R"({"step":1.5})", R"({"step":"1"})"})
    EXPECT_EQ(step_of_row(line).error().code(), Code::kDataLoss) << line;
}

TEST(JsonRowTest, DeterministicPartDropsTheMeasuredAndSortsKeys) {
  StepRecord one;
  one.set("b", 0.25);
  one.set("timing_s/gen", 1.5, Nature::kMeasured);
  one.set("a", 2);
  StepRecord other;
  other.set("a", 2);
  other.set("timing_s/gen", 99, Nature::kMeasured);
  other.set("timing_s/testing", 4, Nature::kMeasured);
  other.set("b", 0.25);
  EXPECT_EQ(deterministic_part(json_row(1, one)).value(), R"({"a":2,"b":0.25,"step":1})");
  EXPECT_EQ(deterministic_part(json_row(1, one)).value(), deterministic_part(json_row(1, other)).value());
  EXPECT_EQ(deterministic_part("{\"a\":").error().code(), Code::kDataLoss);
}

RC_GTEST_PROP(JsonRowTest, DeterministicPartTellsEveryBitApart, ()) {
  const double value = any_finite_double();
  StepRecord one;
  one.set("x", value);
  StepRecord other;
  other.set("x", std::nextafter(value, kInf));
  RC_ASSERT(deterministic_part(json_row(1, one)).value() != deterministic_part(json_row(1, other)).value());
}

}  // namespace
}  // namespace rondo::metrics
