#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace rondo {

// Opened for writing, for a network file system refuses an exclusive lock otherwise.
Result<FileLock> FileLock::take(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return fail(Code::kIo, "cannot create {}: {}", path.string(), std::strerror(errno));
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return FileLock(fd);
  const int error = errno;
  ::close(fd);
  if (error != EWOULDBLOCK) return fail(Code::kIo, "cannot lock {}: {}", path.string(), std::strerror(error));
  return fail(Code::kResourceExhausted, "{} is in use by another rondo process", path.string());
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace rondo
