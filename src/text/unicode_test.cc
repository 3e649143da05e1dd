#include "text/unicode.h"

#include <gtest/gtest.h>

#include <string>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace rondo::text {
namespace {

TEST(UnicodeTest, WhiteSpaceIsTheProperty) {
  int count = 0;
  for (char32_t value = 0; value < 0x110000; ++value) count += is_white_space(value) ? 1 : 0;
  EXPECT_EQ(count, 25);  // PropList.txt, White_Space
  EXPECT_TRUE(is_white_space(0x85));
  EXPECT_TRUE(is_white_space(0x3000));
  EXPECT_FALSE(is_white_space(0x180E));
  EXPECT_FALSE(is_white_space(0x200B));
  EXPECT_FALSE(is_white_space(0x1C));
}

TEST(UnicodeTest, ClassifiesByGeneralCategory) {
  const CharClass* classes = char_classes();
  EXPECT_EQ(classes[U'a'], CharClass::kLetter);
  EXPECT_EQ(classes[0x4E00], CharClass::kLetter);
  EXPECT_EQ(classes[0x02B0], CharClass::kLetter);  // Lm
  EXPECT_EQ(classes[U'7'], CharClass::kNumber);
  EXPECT_EQ(classes[0x00BD], CharClass::kNumber);  // No
  EXPECT_EQ(classes[0x2167], CharClass::kNumber);  // Nl
  EXPECT_EQ(classes[0x0301], CharClass::kOther);   // Mn
  EXPECT_EQ(classes[U'_'], CharClass::kOther);
  EXPECT_EQ(classes[0x180E], CharClass::kOther);
  EXPECT_EQ(classes[U'\n'], CharClass::kSpace);
  EXPECT_EQ(classes[0x10FFFF], CharClass::kOther);
}

TEST(UnicodeTest, KnowsWordCharacters) {
  for (const char32_t value : {U'a', U'_', U'9', U'\u0301', U'\u203F', U'\u24B6', U'\u200D', U'\u2167'})
    EXPECT_TRUE(is_word_char(value)) << static_cast<unsigned>(value);
  for (const char32_t value : {U' ', U'-', U'\u00BD', U'\u20AC', U'\U0001F600'})
    EXPECT_FALSE(is_word_char(value)) << static_cast<unsigned>(value);
}

TEST(UnicodeTest, ComposesToNfc) {
  EXPECT_EQ(to_nfc("cafe\u0301"), "caf\u00e9");
  EXPECT_EQ(to_nfc("\u1100\u1161\u11a8"), "\uac01");
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093c");  // excluded from composition
  EXPECT_EQ(to_nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(to_nfc(std::string("a\0b\u0301", 5)), std::string("a\0b\u0301", 5));
  EXPECT_EQ(to_nfc(""), "");
}

TEST(UnicodeTest, NfcTakesEveryCodePointAndIsIdempotent) {
  std::string all;
  for (char32_t value = 0; value < 0x110000; ++value)
    if (value < 0xD800 || value >= 0xE000) append_code_point(value, all);
  const std::string once = to_nfc(all);
  EXPECT_NE(once, all);
  EXPECT_EQ(to_nfc(once), once);
}

TEST(UnicodeTest, ByteAlphabetIsABijection) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  EXPECT_EQ(from_alphabet(to_alphabet(bytes)), bytes);
  EXPECT_EQ(to_alphabet(" the\n"), "\u0120the\u010a");
  EXPECT_EQ(from_alphabet("a b"), std::nullopt);
  EXPECT_EQ(from_alphabet("\u4e00"), std::nullopt);
}

}  // namespace
}  // namespace rondo::text
