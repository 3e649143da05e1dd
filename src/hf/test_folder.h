// TestFolder: an empty folder that goes away with the test. For tests that read and write model folders.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace rondo::hf {

class TestFolder final {
 public:
  TestFolder() {
    std::string pattern = testing::TempDir() + "/rondo_hf_XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(std::string_view name, std::string_view bytes) const {
    ASSERT_TRUE(write_file_durable(path_ / name, bytes));
  }
  /// Sorted names of what lies in the folder.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }

 private:
  std::filesystem::path path_;
};

/// The little-endian length field and `header`, then `data`.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  std::string bytes;
  for (std::size_t i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
  return bytes.append(header).append(data);
}

}  // namespace rondo::hf
