// Files: whole reads, memory maps, and writes that are durable or do not happen.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace rondo {

/// The whole file as bytes. kNotFound or kIo with the path in the message.
Result<std::string> read_file(const std::filesystem::path& path);

/// Writes, fsyncs and closes a new or truncated file. A full disk is kResourceExhausted and says so.
Result<void> write_file_durable(const std::filesystem::path& path, std::string_view bytes);

/// Writes `path` whole or not at all: a sibling file, fsync, rename, fsync of the folder.
Result<void> replace_file(const std::filesystem::path& path, std::string_view bytes);

/// Makes a file's bytes durable, whoever wrote them.
Result<void> fsync_file(const std::filesystem::path& path);

/// Makes the folder's own entries (created, renamed) durable.
Result<void> fsync_folder(const std::filesystem::path& folder);

/// An append-only output file that keeps its first error. One owner thread.
class FileWriter final {
 public:
  /// Creates or truncates `path`.
  static Result<FileWriter> create(const std::filesystem::path& path);
  /// Opens `path` to write at its end; creates it where it does not exist.
  static Result<FileWriter> open_append(const std::filesystem::path& path);
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) noexcept;
  ~FileWriter();

  /// Writes all of `bytes` or returns why not.
  Result<void> append(std::span<const std::byte> bytes);
  /// fsync: what was appended survives a crash of the machine. The writer stays usable.
  Result<void> sync();
  /// fsync and close. The writer is unusable afterwards.
  Result<void> finish();

 private:
  FileWriter(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  int fd_ = -1;
  std::filesystem::path path_;
};

/// A read-only memory map of a whole file; immutable, any thread.
class MappedFile final {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const std::byte* data, std::size_t size) : data_(data), size_(size) {}
  const std::byte* data_;
  std::size_t size_;
};

}  // namespace rondo
