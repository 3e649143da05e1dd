#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace rondo {
namespace fs = std::filesystem;
namespace {

tl::unexpected<Status> os_error(int error, std::string_view action, const fs::path& path) {
  const std::string reason = std::generic_category().message(error);
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return fail(Code::kNotFound, "cannot {} {}: {}", action, path.string(), reason);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return fail(Code::kResourceExhausted, "cannot {} {}: {}; free some space or choose another folder",
                  action, path.string(), reason);
    default:
      return fail(Code::kIo, "cannot {} {}: {}", action, path.string(), reason);
  }
}

Result<void> fsync_path(const fs::path& path, int flags, std::string_view kind) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  if (fd < 0) return os_error(errno, fmt::format("open {}", kind), path);
  const int failed = ::fsync(fd) != 0 ? errno : 0;
  ::close(fd);
  if (failed != 0) return os_error(failed, fmt::format("flush {}", kind), path);
  return {};
}

}  // namespace

Result<std::string> read_file(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return os_error(errno, "read", path);
  std::string bytes;
  char chunk[1 << 16];
  for (;;) {
    const ssize_t n = ::read(fd, chunk, sizeof(chunk));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      ::close(fd);
      return os_error(error, "read", path);
    }
    if (n == 0) break;
    bytes.append(chunk, static_cast<std::size_t>(n));
  }
  ::close(fd);
  return bytes;
}

Result<FileWriter> FileWriter::create(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return os_error(errno, "create", path);
  return FileWriter(fd, path);
}

Result<FileWriter> FileWriter::open_append(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return os_error(errno, "open", path);
  return FileWriter(fd, path);
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> FileWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return os_error(errno, "write", path_);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> FileWriter::sync() {
  if (::fsync(fd_) != 0) return os_error(errno, "flush", path_);
  return {};
}

Result<void> FileWriter::finish() {
  const int fd = std::exchange(fd_, -1);
  if (::fsync(fd) != 0) {
    const int error = errno;
    ::close(fd);
    return os_error(error, "flush", path_);
  }
  if (::close(fd) != 0) return os_error(errno, "close", path_);
  return {};
}

Result<void> write_file_durable(const fs::path& path, std::string_view bytes) {
  RONDO_ASSIGN(FileWriter writer, FileWriter::create(path));
  RONDO_TRY(writer.append(std::as_bytes(std::span(bytes))));
  return writer.finish();
}

Result<void> replace_file(const fs::path& path, std::string_view bytes) {
  fs::path temporary = path;
  temporary += ".tmp";
  if (auto written = write_file_durable(temporary, bytes); !written) {
    ::unlink(temporary.c_str());
    return written;
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) return os_error(errno, "rename to", path);
  return fsync_folder(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

Result<void> fsync_file(const fs::path& path) {
  return fsync_path(path, 0, "file");
}

Result<void> fsync_folder(const fs::path& folder) {
  return fsync_path(folder, O_DIRECTORY, "folder");
}

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return os_error(errno, "open", path);
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    return os_error(error, "inspect", path);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return fail(Code::kInvalidArgument, "{} is not a regular file", path.string());
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) {
    ::close(fd);
    return std::shared_ptr<const MappedFile>(new MappedFile(nullptr, 0));
  }
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  ::close(fd);
  if (data == MAP_FAILED) return os_error(error, "map", path);
  return std::shared_ptr<const MappedFile>(new MappedFile(static_cast<const std::byte*>(data), size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace rondo
