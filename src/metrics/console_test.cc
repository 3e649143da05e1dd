#include "metrics/console.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <limits>

namespace rondo::metrics {
namespace {

TEST(ConsoleTest, DurationsAreShortAndCarryOver) {
  EXPECT_EQ(format_duration(0), "0.00s");
  EXPECT_EQ(format_duration(0.4241), "0.42s");
  EXPECT_EQ(format_duration(0.996), "1.0s");
  EXPECT_EQ(format_duration(9.96), "10s");
  EXPECT_EQ(format_duration(59.6), "1m00s");
  EXPECT_EQ(format_duration(192), "3m12s");
  EXPECT_EQ(format_duration(3599.6), "1h00m");
  EXPECT_EQ(format_duration(7500), "2h05m");
  EXPECT_EQ(format_duration(3 * 86400 + 4 * 3600 + 59), "3d04h");
  for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_EQ(format_duration(bad), "?") << bad;
}

TEST(ConsoleTest, NumbersHaveFourDigits) {
  EXPECT_EQ(format_number(0), "0");
  EXPECT_EQ(format_number(3), "3");
  EXPECT_EQ(format_number(0.41421356), "0.4142");
  EXPECT_EQ(format_number(-12.345678), "-12.35");
  EXPECT_EQ(format_number(9999.4), "9999");
  EXPECT_EQ(format_number(9999.6), "10000");
  EXPECT_EQ(format_number(123456), "123456");
  EXPECT_EQ(format_number(123456789), "1.235e+08");
  EXPECT_EQ(format_number(5e-6), "5e-06");
  EXPECT_EQ(format_number(std::nan("")), "nan");
}

StepRecord example_record() {
  StepRecord record;
  record.set("critic/rewards/mean", 0.41);
  record.set("timing_s/gen", 1.23, Nature::kMeasured);
  return record;
}

std::vector<StepLine::Column> example_columns() {
  return {{"critic/rewards/mean", "reward"},
          {"response_length/mean", "len"},
          {"timing_s/gen", "gen", StepLine::Unit::kSeconds}};
}

TEST(ConsoleTest, StepLineShowsKnownColumnsAndEta) {
  const StepLine line(example_columns(), TextStyle::kPlain);
  EXPECT_EQ(line.format(3, 40, example_record(), 192.0), "step:3/40 - reward:0.41 - gen:1.2s - eta:3m12s");
  EXPECT_EQ(line.format(3, 40, StepRecord(), std::nullopt), "step:3/40");
}

TEST(ConsoleTest, TerminalStyleAddsOnlyEscapes) {
  std::string styled =
      StepLine(example_columns(), TextStyle::kTerminal).format(3, 40, example_record(), 192.0);
  EXPECT_NE(styled.find('\x1b'), std::string::npos);
  for (const char* escape : {"\x1b[1m", "\x1b[2m", "\x1b[0m", "\x1b[0m"}) {
    const std::size_t at = styled.find(escape);
    ASSERT_NE(at, std::string::npos) << escape + 1;
    styled.erase(at, std::string(escape).size());
  }
  EXPECT_EQ(styled, StepLine(example_columns(), TextStyle::kPlain).format(3, 40, example_record(), 192.0));
}

TEST(ConsoleTest, APipeIsNoTerminal) {
  int ends[2] = {};
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(style_of(ends[1]), TextStyle::kPlain);
  close(ends[0]);
  close(ends[1]);
}

TEST(ConsoleTest, TableAlignsColumnsByCharacters) {
  ConsoleTable table({"memory", "size"});
  table.add_row({"größer", "1.5 GiB"});
  table.add_row({"kv", "512 MiB"});
  EXPECT_EQ(table.to_string(),
            "memory     size\n"
            "---------------\n"
            "größer  1.5 GiB\n"
            "kv      512 MiB\n");
}

}  // namespace
}  // namespace rondo::metrics
