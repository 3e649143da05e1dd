#include "base/file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace rondo {
namespace {

namespace fs = std::filesystem;

fs::path scratch(const char* name) {
  const fs::path folder = fs::path(testing::TempDir()) / "rondo_file_test";
  fs::create_directories(folder);
  return folder / name;
}

TEST(FileTest, WritesReadsAndMapsTheSameBytes) {
  const std::string bytes("a\0b\xff", 4);
  const fs::path path = scratch("bytes");
  ASSERT_TRUE(write_file_durable(path, bytes));
  EXPECT_EQ(read_file(path).value(), bytes);
  const auto mapped = MappedFile::open(path);
  ASSERT_TRUE(mapped);
  const auto view = (*mapped)->bytes();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(view.data()), view.size()), bytes);
}

TEST(FileTest, MissingFileIsNotFoundAndNamesThePath) {
  const auto missing = read_file(scratch("no/such/file"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_NE(missing.error().message().find("no/such/file"), std::string::npos);
}

TEST(FileTest, FullDiskIsResourceExhaustedAndLeavesTheOldFile) {
  const auto full = write_file_durable("/dev/full", "bytes");
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code(), Code::kResourceExhausted);
}

TEST(FileTest, FlushingWhatIsNotThereNamesThePath) {
  const fs::path path = scratch("flushed");
  ASSERT_TRUE(write_file_durable(path, "bytes"));
  EXPECT_TRUE(fsync_file(path));
  EXPECT_TRUE(fsync_folder(path.parent_path()));
  EXPECT_FALSE(fsync_folder(path)) << "a file is no folder";
  const auto missing = fsync_file(scratch("never_written"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_NE(missing.error().message().find("never_written"), std::string::npos);
}

TEST(FileTest, ReplaceLeavesNoTemporary) {
  const fs::path path = scratch("replaced");
  ASSERT_TRUE(replace_file(path, "old"));
  ASSERT_TRUE(replace_file(path, "new"));
  EXPECT_EQ(read_file(path).value(), "new");
  EXPECT_FALSE(fs::exists(path.string() + ".tmp"));
}

TEST(FileTest, AppendsToWhatIsThere) {
  const fs::path path = scratch("appended");
  fs::remove(path);
  for (const char* bytes : {"one", "two"}) {
    auto writer = FileWriter::open_append(path);
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->append(std::as_bytes(std::span(std::string_view(bytes)))));
    ASSERT_TRUE(writer->sync());
  }
  EXPECT_EQ(read_file(path).value(), "onetwo");
}

TEST(FileTest, MapsAnEmptyFileAndRefusesAFolder) {
  const fs::path path = scratch("empty");
  ASSERT_TRUE(write_file_durable(path, ""));
  EXPECT_EQ((*MappedFile::open(path))->bytes().size(), 0u);
  EXPECT_FALSE(MappedFile::open(path.parent_path()));
}

}  // namespace
}  // namespace rondo
