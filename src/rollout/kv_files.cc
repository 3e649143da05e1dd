#include "rollout/kv_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "base/checksum.h"
#include "base/file.h"
#include "base/log.h"

namespace rondo::rollout {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "rondo_kv_";
constexpr std::string_view kNew = "new_";
constexpr std::string_view kSuffix = ".kv";
// Images on their way to the disk beyond which write() waits.
constexpr std::ptrdiff_t kMaxWrites = 4;
// How often a parcel that is not filled yet is looked at.
constexpr std::chrono::microseconds kPoll{500};

struct Header {
  std::array<char, 8> magic;
  std::int32_t first_block;
  std::int32_t num_blocks;
  std::int32_t num_tokens;
  std::int32_t zero;
  std::uint64_t sum;
};
constexpr std::array<char, 8> kMagic = {'r', 'o', 'n', 'd', 'o', 'k', 'v', '1'};

Result<void> write_image(const fs::path& path, const kv::Image& image) {
  const std::uint64_t sum = image.sum.value_or(checksum(image.bytes.span()));
  const Header header{kMagic, image.first_block, image.num_blocks, image.num_tokens, 0, sum};
  RONDO_ASSIGN(FileWriter file, FileWriter::create(path));
  RONDO_TRY(file.append(std::as_bytes(std::span(&header, 1))));
  return file.append(image.bytes.span());
}

// Null if the file is not what was written.
std::shared_ptr<const kv::Image> read_image(const fs::path& path) {
  const Result<std::string> bytes = read_file(path);
  Header header;
  if (!bytes || bytes->size() <= sizeof header) return nullptr;
  std::memcpy(&header, bytes->data(), sizeof header);
  if (header.magic != kMagic || header.num_blocks < 1) return nullptr;
  auto image = std::make_shared<kv::Image>();
  image->first_block = header.first_block;
  image->num_blocks = header.num_blocks;
  image->num_tokens = header.num_tokens;
  image->bytes = kv::ImageBuffer(bytes->size() - sizeof header);
  std::memcpy(image->bytes.data(), bytes->data() + sizeof header, image->bytes.size());
  image->sum = header.sum;
  return image->intact() ? image : nullptr;
}

void remove_quietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
}

fs::path lock_of(const fs::path& folder) {
  return folder / ".lock";
}

// Our own files alone; a folder with others stays.
void remove_folder(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == kSuffix) remove_quietly(entry.path());
  remove_quietly(lock_of(folder));
  remove_quietly(folder);
}

// A folder whose lock is free is no one's. Another process may be removing it as well.
void remove_left_behind(const fs::path& parent) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    const fs::path& folder = entry.path();
    if (!folder.filename().string().starts_with(kPrefix) || !fs::exists(lock_of(folder), error)) continue;
    if (const auto lock = FileLock::take(lock_of(folder))) remove_folder(folder);
  }
}

}  // namespace

// It gets its name once it is locked, so it is never seen without an owner.
Result<KvFolder> KvFolder::create(const fs::path& parent) {
  std::error_code error;
  fs::create_directories(parent, error);
  if (!error) remove_left_behind(parent);
  std::string pattern = (parent / fmt::format("{}{}XXXXXX", kNew, kPrefix)).string();
  if (error || ::mkdtemp(pattern.data()) == nullptr) {
    return fail(Code::kIo, "cannot make a folder in {}: {}; name another one in rollout.disk_kv_folder",
                parent.string(), error ? error.message() : std::strerror(errno));
  }
  RONDO_ASSIGN_CTX(FileLock lock, FileLock::take(lock_of(pattern)), "rollout.disk_kv_folder");
  const fs::path path = parent / fs::path(pattern).filename().string().substr(kNew.size());
  fs::rename(pattern, path, error);
  if (!error) return KvFolder(path, std::move(lock));
  remove_folder(pattern);
  return fail(Code::kIo, "cannot make {}; name another folder in rollout.disk_kv_folder", path.string());
}

KvFolder::~KvFolder() {
  if (!path_.empty()) remove_folder(path_);
}

Result<std::unique_ptr<KvFiles>> KvFiles::create(const fs::path& parent) {
  RONDO_ASSIGN(KvFolder folder, KvFolder::create(parent));
  return std::unique_ptr<KvFiles>(new KvFiles(std::move(folder)));
}

KvFiles::KvFiles(KvFolder folder) : folder_(std::move(folder)), thread_([this] { loop(); }) {}

KvFiles::~KvFiles() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (const Job& job : jobs_) {
    if (job.kind == Job::Kind::kRead) job.parcel->fill(nullptr);
  }
}

fs::path KvFiles::path_of(std::int64_t file) const {
  return folder_.path() / fmt::format("{}{}", file, kSuffix);
}

void KvFiles::ask(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

std::ptrdiff_t KvFiles::num_ready_writes() const {
  return std::ranges::count_if(jobs_,
                               [](const Job& job) { return job.kind == Job::Kind::kWrite && job.can_run(); });
}

std::int64_t KvFiles::write(std::shared_ptr<Parcel> parcel) {
  {
    std::unique_lock lock(mutex_);
    while (num_ready_writes() > kMaxWrites) changed_.wait_for(lock, kPoll);
  }
  ask({.kind = Job::Kind::kWrite, .file = next_file_, .parcel = std::move(parcel)});
  return next_file_++;
}

// The parcel of a write that has not begun, which then never does; else null.
std::shared_ptr<Parcel> KvFiles::take_unwritten(std::int64_t file) {
  const std::lock_guard lock(mutex_);
  const auto job = std::ranges::find_if(
      jobs_, [file](const Job& j) { return j.kind == Job::Kind::kWrite && j.file == file; });
  if (job == jobs_.end()) return nullptr;
  std::shared_ptr<Parcel> parcel = std::move(job->parcel);
  jobs_.erase(job);
  return parcel;
}

std::shared_ptr<Parcel> KvFiles::read(std::int64_t file) {
  if (auto unwritten = take_unwritten(file)) return unwritten;
  auto parcel = std::make_shared<Parcel>();
  ask({.kind = Job::Kind::kRead, .file = file, .parcel = parcel});
  return parcel;
}

void KvFiles::drop(std::int64_t file) {
  if (take_unwritten(file) == nullptr) ask({.kind = Job::Kind::kRemove, .file = file});
}

void KvFiles::settle() {
  std::unique_lock lock(mutex_);
  const auto done = [this] { return !busy_ && std::ranges::none_of(jobs_, &Job::can_run); };
  while (!done()) changed_.wait_for(lock, kPoll);
}

void KvFiles::loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto next = std::ranges::find_if(jobs_, &Job::can_run);
    if (next == jobs_.end()) {
      if (jobs_.empty()) {
        changed_.wait(lock);
      } else {
        changed_.wait_for(lock, kPoll);
      }
      continue;
    }
    const Job job = std::move(*next);
    jobs_.erase(next);
    busy_ = true;
    lock.unlock();
    carry_out(job);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

// An image that cannot be had for whatever reason is lost.
void KvFiles::carry_out(const Job& job) {
  try {
    carry_out_now(job);
  } catch (const std::exception& error) {
    lose(error.what());
  }
  if (job.kind == Job::Kind::kRead) job.parcel->fill(nullptr);  // if it is not yet
}

void KvFiles::carry_out_now(const Job& job) {
  switch (job.kind) {
    case Job::Kind::kWrite:
      return write_now(job);
    case Job::Kind::kRead:
      return read_now(job);
    case Job::Kind::kRemove:
      return remove_quietly(path_of(job.file));
  }
}

void KvFiles::write_now(const Job& job) {
  const std::shared_ptr<const kv::Image>& image = job.parcel->image();
  if (image == nullptr) return;  // it was lost on its way here; so reading finds nothing
  if (const Result<void> written = write_image(path_of(job.file), *image); !written) {
    remove_quietly(path_of(job.file));
    lose(written.error().message());
    return;
  }
  bytes_written_ += static_cast<std::int64_t>(image->bytes.size());
}

void KvFiles::read_now(const Job& job) {
  const fs::path path = path_of(job.file);
  std::shared_ptr<const kv::Image> image;
  std::error_code error;
  if (fs::exists(path, error)) {
    image = read_image(path);
    if (image == nullptr) {
      lose(fmt::format("{} is damaged", path.string()));
    } else {
      bytes_read_ += static_cast<std::int64_t>(image->bytes.size());
    }
    remove_quietly(path);
  }
  job.parcel->fill(std::move(image));
}

void KvFiles::lose(const std::string& why) {
  if (num_lost_++ == 0) log::warn("{}; such KV is computed again, and not warned of any more", why);
}

}  // namespace rondo::rollout
