#include "text/utf8.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

namespace rondo::text {
namespace {

std::string lossy(std::string_view bytes) {
  std::string out;
  append_lossy(bytes, out);
  return out;
}

std::string replacements(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += "\xEF\xBF\xBD";
  return out;
}

// Bytes that make both whole and broken sequences likely.
rc::Gen<std::string> broken_utf8() {
  return rc::gen::container<std::string>(rc::gen::map(
      rc::gen::elementOf(std::vector<int>{0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC3,
                                          0xDF, 0xE0, 0xE2, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF}),
      [](int byte) { return static_cast<char>(byte); }));
}

TEST(Utf8Test, KeepsValidText) {
  const std::string text = "a\u00e9\u20ac\U0001F600\uFFFD";
  EXPECT_EQ(lossy(text), text);
  EXPECT_EQ(valid_prefix(text), text.size());
}

// Expected values: Unicode 14, tables 3-8 to 3-11.
TEST(Utf8Test, ReplacesMaximalSubparts) {
  EXPECT_EQ(lossy("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), replacements(8) + "A");
  EXPECT_EQ(lossy("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), replacements(8) + "A");
  EXPECT_EQ(lossy("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), replacements(5) + "A" + replacements(2) + "B");
  EXPECT_EQ(lossy("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), replacements(4) + "A");
}

TEST(Utf8Test, FindsTheIncompleteSuffix) {
  EXPECT_EQ(incomplete_suffix(""), 0u);
  EXPECT_EQ(incomplete_suffix("a\u20ac"), 0u);
  EXPECT_EQ(incomplete_suffix("a\xE2"), 1u);
  EXPECT_EQ(incomplete_suffix("a\xE2\x82"), 2u);
  EXPECT_EQ(incomplete_suffix("a\xF0\x9F\x98"), 3u);
  EXPECT_EQ(incomplete_suffix("\xE0\x80"), 0u);  // no third byte makes this a character
  EXPECT_EQ(incomplete_suffix("\xC3\xC3"), 1u);
  EXPECT_EQ(incomplete_suffix("\xFF"), 0u);
}

RC_GTEST_PROP(Utf8Test, LossyTextIsValidAndStable, ()) {
  const std::string bytes = *broken_utf8();
  const std::string text = lossy(bytes);
  RC_ASSERT(valid_prefix(text) == text.size());
  RC_ASSERT(lossy(text) == text);
}

RC_GTEST_PROP(Utf8Test, CuttingBeforeTheIncompleteSuffixChangesNothing, ()) {
  const std::string bytes = *broken_utf8();
  const std::string more = *broken_utf8();
  const std::size_t cut = bytes.size() - incomplete_suffix(bytes);
  RC_ASSERT(lossy(bytes.substr(0, cut)) + lossy(bytes.substr(cut) + more) == lossy(bytes + more));
}

TEST(Utf8Test, WritesAndReadsEveryCodePoint) {
  for (char32_t value = 0; value < 0x110000; ++value) {
    if (value >= 0xD800 && value < 0xE000) continue;
    std::string text = "x";
    append_code_point(value, text);
    ASSERT_EQ(valid_prefix(text), text.size());
    ASSERT_EQ(code_point_at(text.data() + 1).value, value);
    const CodePoint last = code_point_before(text.data(), text.data() + text.size());
    ASSERT_EQ(last.value, value);
    ASSERT_EQ(last.size, text.size() - 1);
  }
}

}  // namespace
}  // namespace rondo::text
