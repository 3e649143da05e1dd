#include "reward/gsm8k.h"

#include <gtest/gtest.h>

namespace rondo::reward {
namespace {

TEST(Gsm8kTest, TakesTheNumberBehindTheMark) {
  EXPECT_EQ(gsm8k_answer("6*12 = 72\n#### 72"), "72");
  EXPECT_EQ(gsm8k_answer("#### -1,234.5 dollars"), "-1234.5");
  EXPECT_EQ(gsm8k_answer("#### 1 then #### 2 and ####3"), "2");
  EXPECT_EQ(gsm8k_answer("###### 7"), "7");
}

TEST(Gsm8kTest, KeepsATrailingFullStop) {
  EXPECT_EQ(gsm8k_answer("#### 72."), "72.");
}

TEST(Gsm8kTest, NeedsExactlyOneSpaceAndADigitPointOrComma) {
  EXPECT_EQ(gsm8k_answer("####72"), std::nullopt);
  EXPECT_EQ(gsm8k_answer("####  72"), std::nullopt);
  EXPECT_EQ(gsm8k_answer("#### $72"), std::nullopt);
  EXPECT_EQ(gsm8k_answer("#### -"), std::nullopt);
  EXPECT_EQ(gsm8k_answer("#### --1"), std::nullopt);
  EXPECT_EQ(gsm8k_answer("#### "), std::nullopt);
  EXPECT_EQ(gsm8k_answer("the answer is 72"), std::nullopt);
  EXPECT_EQ(gsm8k_answer(""), std::nullopt);
}

TEST(Gsm8kTest, AMarkWithoutANumberIsPassedOver) {
  EXPECT_EQ(gsm8k_answer("#### 5\n#### none"), "5");
}

TEST(Gsm8kTest, LooksAtTheLast300CharactersOnly) {
  const std::string answer = "#### 5";
  EXPECT_EQ(gsm8k_answer(answer + std::string(294, 'x')), "5");
  EXPECT_EQ(gsm8k_answer(answer + std::string(295, 'x')), std::nullopt);
  std::string wide = answer;
  for (int i = 0; i < 294; ++i) wide += "é";
  EXPECT_EQ(gsm8k_answer(wide), "5");
  EXPECT_EQ(gsm8k_answer(wide + "é"), std::nullopt);
}

TEST(Gsm8kTest, FlexibleTakesTheLastRunOfDigits) {
  EXPECT_EQ(gsm8k_flexible_answer("first 3, then 72 apples"), "72");
  EXPECT_EQ(gsm8k_flexible_answer("10-3"), "-3");
  EXPECT_EQ(gsm8k_flexible_answer("1,234"), "1,234");
  EXPECT_EQ(gsm8k_flexible_answer("it is 72."), "72.");
  EXPECT_EQ(gsm8k_flexible_answer("no number"), std::nullopt);
}

TEST(Gsm8kTest, FlexiblePassesOverALoneFullStop) {
  EXPECT_EQ(gsm8k_flexible_answer("72 apples . ."), "72");
  EXPECT_EQ(gsm8k_flexible_answer("none."), ".");
}

TEST(Gsm8kTest, LongInputsTakeLinearTime) {
  // Quadratic behaviour on 16 MB would not end within the test's time limit.
  std::string marks;
  while (marks.size() < (std::size_t{16} << 20)) marks += "#### -";
  EXPECT_EQ(gsm8k_answer(marks), std::nullopt);
  EXPECT_EQ(gsm8k_flexible_answer(std::string(std::size_t{16} << 20, '.')).value().size(), 300u);
}

}  // namespace
}  // namespace rondo::reward
