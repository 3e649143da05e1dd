#include "config/byte_size.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

namespace rondo::config {
namespace {

TEST(ByteSizeTest, ReadsUnitsOfBothFamilies) {
  EXPECT_EQ(parse_byte_size("2GiB").value().bytes, std::int64_t{2} << 30);
  EXPECT_EQ(parse_byte_size("2GB").value().bytes, 2'000'000'000);
  EXPECT_EQ(parse_byte_size("1.5 mib").value().bytes, 1'572'864);
  EXPECT_EQ(parse_byte_size("0.5TiB").value().bytes, std::int64_t{1} << 39);
  EXPECT_EQ(parse_byte_size("4096").value().bytes, 4096);
  EXPECT_EQ(parse_byte_size("7b").value().bytes, 7);
}

TEST(ByteSizeTest, RefusesWhatIsNoSize) {
  for (const char* text : {"", "GiB", "2 G", "2XB", "-1GiB", "1.GiB", ".5GiB", "1.2.3GiB", "1e3", "0x10",
                           "nan", "1234567890123456789", "2GiB "})
    EXPECT_FALSE(parse_byte_size(text)) << text;
}

TEST(ByteSizeTest, RefusesFractionsOfAByteAndOverflow) {
  EXPECT_NE(parse_byte_size("0.3KiB").error().message().find("whole number"), std::string::npos);
  EXPECT_NE(parse_byte_size("9000000TiB").error().message().find("2^63"), std::string::npos);
  EXPECT_EQ(parse_byte_size("8388607TiB").value().bytes, std::int64_t{8388607} << 40);
}

TEST(ByteSizeTest, PrintsTheLargestUnitThatDivides) {
  EXPECT_EQ(to_string(ByteSize{2 * kGiB}), "2GiB");
  EXPECT_EQ(to_string(ByteSize{1536 * kMiB}), "1536MiB");
  EXPECT_EQ(to_string(ByteSize{1000}), "1000B");
  EXPECT_EQ(to_string(ByteSize{0}), "0B");
}

RC_GTEST_PROP(ByteSizeTest, PrintedSizesReadBack, ()) {
  const int shift = *rc::gen::inRange(0, 40);
  const std::int64_t bytes = *rc::gen::inRange<std::int64_t>(0, 1'000'000) << shift;
  // 18 digits are the limit of the reader; the writer stays below it for sizes that exist.
  RC_PRE(bytes < 1'000'000'000'000'000'000);
  RC_ASSERT(parse_byte_size(to_string(ByteSize{bytes})).value().bytes == bytes);
}

}  // namespace
}  // namespace rondo::config
