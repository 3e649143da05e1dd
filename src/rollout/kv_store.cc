#include "rollout/kv_store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/file.h"

namespace rondo::rollout {
namespace {

namespace fs = std::filesystem;

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
  const Header header{kMagic, image.first_block, image.num_blocks, image.num_tokens, 0, image.sum};
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
  image->bytes = AlignedBuffer<std::byte>(bytes->size() - sizeof header);
  std::memcpy(image->bytes.data(), bytes->data() + sizeof header, image->bytes.size());
  image->sum = header.sum;
  return image->intact() ? image : nullptr;
}

void remove_quietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
}

}  // namespace

KvStore::KvStore(fs::path folder) : parent_(std::move(folder)) {}

KvStore::~KvStore() {
  clear();
  std::error_code ignored;
  if (!folder_.empty()) fs::remove(folder_, ignored);
}

// Whoever creates a folder owns it; a folder that cannot be made is an error of the first write.
void KvStore::make_own_folder() {
  if (!folder_.empty()) return;
  std::error_code error;
  fs::create_directories(parent_, error);
  for (int attempt = 0; folder_.empty(); ++attempt) {
    fs::path candidate = parent_ / fmt::format("store_{}_{}", ::getpid(), attempt);
    const bool created = fs::create_directory(candidate, error);
    if (created || error || attempt == 1000) folder_ = std::move(candidate);
  }
}

fs::path KvStore::file_of(RequestId request) const {
  return folder_ / fmt::format("request_{}.kv", request.value());
}

void KvStore::put(RequestId request, std::shared_ptr<Parcel> parcel) {
  entries_[request] = {std::move(parcel)};
}

Result<void> KvStore::move_to_disk(RequestId request) {
  const auto it = entries_.find(request);
  if (it == entries_.end() || it->second.parcel == nullptr) return {};
  while (!it->second.parcel->ready()) std::this_thread::sleep_for(std::chrono::microseconds(200));
  const std::shared_ptr<const kv::Image> image = it->second.parcel->image();
  if (image == nullptr) {
    entries_.erase(it);
    ++num_lost_;
    return fail(Code::kNotFound, "the KV of request {} was lost on its way", request);
  }
  make_own_folder();
  if (Result<void> written = write_image(file_of(request), *image); !written) {
    drop(request);
    remove_quietly(file_of(request));
    ++num_lost_;
    return written;
  }
  bytes_written_ += static_cast<std::int64_t>(image->bytes.size());
  it->second.parcel = nullptr;
  return {};
}

std::shared_ptr<const Parcel> KvStore::take(RequestId request) {
  const auto it = entries_.find(request);
  if (it == entries_.end()) return nullptr;
  std::shared_ptr<Parcel> parcel = std::move(it->second.parcel);
  entries_.erase(it);
  if (parcel != nullptr) return parcel;
  parcel = std::make_shared<Parcel>();
  std::shared_ptr<const kv::Image> image = read_image(file_of(request));
  num_lost_ += image == nullptr ? 1 : 0;
  parcel->fill(std::move(image));
  remove_quietly(file_of(request));
  return parcel;
}

void KvStore::drop(RequestId request) {
  const auto it = entries_.find(request);
  if (it == entries_.end()) return;
  if (it->second.parcel == nullptr) remove_quietly(file_of(request));
  entries_.erase(it);
}

void KvStore::clear() {
  while (!entries_.empty()) drop(entries_.begin()->first);
}

}  // namespace rondo::rollout
