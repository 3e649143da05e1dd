#include "reward/number.h"

#include <gtest/gtest.h>

namespace rondo::reward {
namespace {

TEST(NumberTest, FindsTheLastNumberInText) {
  EXPECT_EQ(last_number("3 + 4 = 7"), "7");
  EXPECT_EQ(last_number("The answer is 72."), "72");
  EXPECT_EQ(last_number("costs $1,234.50!"), "1234.5");
  EXPECT_EQ(last_number("**42** (see above)"), "42");
  EXPECT_EQ(last_number("half is .5"), "0.5");
  EXPECT_EQ(last_number("none ... , -"), std::nullopt);
  EXPECT_EQ(last_number(""), std::nullopt);
}

TEST(NumberTest, WritesOneFormForOneNumber) {
  EXPECT_EQ(last_number("007"), "7");
  EXPECT_EQ(last_number("72.000"), "72");
  EXPECT_EQ(last_number("+72"), "72");
  EXPECT_EQ(last_number("-0.0"), "0");
  EXPECT_EQ(last_number("-00.50"), "-0.5");
  EXPECT_EQ(last_number("0"), "0");
  EXPECT_EQ(last_number("100"), "100");
}

TEST(NumberTest, DoesNotRound) {
  EXPECT_EQ(last_number("123456789012345678901234567890.10"), "123456789012345678901234567890.1");
}

TEST(NumberTest, CommasJoinGroupsOfThreeOnly) {
  EXPECT_EQ(last_number("1,234,567"), "1234567");
  EXPECT_EQ(last_number("1, 2,3"), "3");
  EXPECT_EQ(last_number("1,2345"), "2345");
  EXPECT_EQ(last_number("1234,567"), "567");
  EXPECT_EQ(last_number("1,234,56"), "56");
  EXPECT_EQ(last_number("12,"), "12");
}

TEST(NumberTest, ASignBelongsToANumberUnlessItIsAnOperator) {
  EXPECT_EQ(last_number("x = -3"), "-3");
  EXPECT_EQ(last_number("10-3"), "3");
  EXPECT_EQ(last_number("(4)-3"), "3");
  EXPECT_EQ(last_number("10 - 3"), "3");
  EXPECT_EQ(last_number("covid-19"), "19");
  EXPECT_EQ(last_number("$-3"), "-3");
}

TEST(NumberTest, PointsAndLettersEndANumber) {
  EXPECT_EQ(last_number("1.2.3"), "3");
  EXPECT_EQ(last_number("1e5"), "5");
  EXPECT_EQ(last_number("3/4"), "4");
  EXPECT_EQ(last_number("5%"), "5");
}

TEST(NumberTest, WholeNumberIsNothingElse) {
  EXPECT_EQ(whole_number(" 1,000\n"), "1000");
  EXPECT_EQ(whole_number("-7.50"), "-7.5");
  EXPECT_EQ(whole_number("7."), std::nullopt);
  EXPECT_EQ(whole_number("7 apples"), std::nullopt);
  EXPECT_EQ(whole_number("7 8"), std::nullopt);
  EXPECT_EQ(whole_number("--7"), std::nullopt);
  EXPECT_EQ(whole_number("#### 7"), std::nullopt);
  EXPECT_EQ(whole_number("  "), std::nullopt);
}

TEST(NumberTest, LongInputsTakeLinearTime) {
  // Quadratic behaviour on megabytes would not end within the test's time limit.
  const std::size_t size = std::size_t{4} << 20;
  EXPECT_EQ(last_number(std::string(size, '9')).value().size(), size);
  EXPECT_EQ(last_number("7 " + std::string(size, '.')), "7");
  std::string groups = "1";
  while (groups.size() < size) groups += ",000";
  EXPECT_EQ(last_number(groups + ",0").value(), "0");
}

}  // namespace
}  // namespace rondo::reward
