// KvFiles: the disk tier of the KV store, written and read by a thread of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/file_lock.h"
#include "base/status.h"
#include "rollout/engine_client.h"

namespace rondo::rollout {

/// A folder rondo_kv_* of this process alone, locked while it lives, so that no one takes it for left behind.
class KvFolder final {
 public:
  /// Makes `parent` and a new folder in it, and removes what KvFolders of dead owners left there, and nothing
  /// else. kIo if it cannot be written.
  static Result<KvFolder> create(const std::filesystem::path& parent);
  KvFolder(KvFolder&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}
  KvFolder& operator=(KvFolder&&) = delete;
  /// Removes it with its files.
  ~KvFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  KvFolder(std::filesystem::path path, FileLock lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::filesystem::path path_;
  FileLock lock_;
};

/// Writes parcels to files and reads them back, in the background.
///
/// A file holds one image: magic "rondokv1", first block, number of blocks and of tokens (int32 each, little
/// endian), zero (int32), the image's checksum (uint64), the bytes. A file that is short, damaged, gone or
/// was never written for want of space is an image lost, never an error of the run; the first one is warned
/// of. What is being written still takes memory: write() waits while several images are on their way to the
/// disk, but never for an instance. One owner thread.
class KvFiles final {
 public:
  static Result<std::unique_ptr<KvFiles>> create(const std::filesystem::path& parent);
  KvFiles(const KvFiles&) = delete;
  KvFiles& operator=(const KvFiles&) = delete;
  /// Parcels that are still to be filled stay empty.
  ~KvFiles();

  /// The parcel goes to a new file, whose number is returned, as soon as it is filled.
  std::int64_t write(std::shared_ptr<Parcel> parcel);
  /// The file's content leaves for the parcel, which is filled later, with nothing if it is lost.
  std::shared_ptr<Parcel> read(std::int64_t file);
  void drop(std::int64_t file);
  /// Waits until all that was asked for is done, but for writes whose parcels are not filled.
  void settle();

  const std::filesystem::path& folder() const { return folder_.path(); }
  std::int64_t bytes_written() const { return bytes_written_; }
  /// Of images that came back whole.
  std::int64_t bytes_read() const { return bytes_read_; }
  std::int64_t num_lost() const { return num_lost_; }

 private:
  struct Job {
    enum class Kind : std::uint8_t { kWrite, kRead, kRemove };
    Kind kind = Kind::kRead;
    std::int64_t file = 0;
    std::shared_ptr<Parcel> parcel = {};  // to write from, or to read into
    bool can_run() const { return kind != Kind::kWrite || parcel->ready(); }
  };

  explicit KvFiles(KvFolder folder);
  std::filesystem::path path_of(std::int64_t file) const;
  void ask(Job job);
  std::shared_ptr<Parcel> take_unwritten(std::int64_t file);
  std::ptrdiff_t num_ready_writes() const;
  void loop();
  void carry_out(const Job& job);
  void carry_out_now(const Job& job);
  void write_now(const Job& job);
  void read_now(const Job& job);
  void lose(const std::string& why);

  KvFolder folder_;
  std::int64_t next_file_ = 0;
  std::atomic<std::int64_t> bytes_written_ = 0;
  std::atomic<std::int64_t> bytes_read_ = 0;
  std::atomic<std::int64_t> num_lost_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace rondo::rollout
