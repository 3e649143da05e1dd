// FileLock: one process at a time.
#pragma once

#include <filesystem>

#include "base/status.h"

namespace rondo {

/// An exclusive lock on a file, held until destruction; the operating system drops it too when the process
/// ends, on a network file system also when it ran on another machine.
class FileLock final {
 public:
  /// Creates the file where it does not exist; what is in it stays. kResourceExhausted if another process, or
  /// another lock of this one, holds it; kIo if it cannot be opened, or
  /// locked where it lies.
  static Result<FileLock> take(const std::filesystem::path& path);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace rondo
