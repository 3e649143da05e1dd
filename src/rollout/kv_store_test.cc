// KV in host memory and in files: what comes back, what is lost, and whose folders stay.
#include "rollout/kv_store.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <tuple>

#include "base/file.h"

namespace rondo::rollout {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<const kv::Image> image_of(int seed, std::size_t size = 1000) {
  auto image = std::make_shared<kv::Image>();
  image->num_blocks = seed;
  image->num_tokens = seed * 64 - 1;
  image->bytes = kv::ImageBuffer(size);
  std::memset(image->bytes.data(), seed, size);
  image->seal();
  return image;
}

std::shared_ptr<Parcel> parcel_of(std::shared_ptr<const kv::Image> image) {
  auto parcel = std::make_shared<Parcel>();
  parcel->fill(std::move(image));
  return parcel;
}

void wait_for(const Parcel& parcel) {
  while (!parcel.ready()) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

void expect_equal(const std::shared_ptr<const Parcel>& parcel, const kv::Image& image) {
  ASSERT_NE(parcel, nullptr);
  wait_for(*parcel);
  ASSERT_NE(parcel->image(), nullptr);
  EXPECT_EQ(parcel->image()->num_blocks, image.num_blocks);
  EXPECT_EQ(parcel->image()->num_tokens, image.num_tokens);
  EXPECT_EQ(parcel->image()->sum, image.sum);
  EXPECT_TRUE(std::ranges::equal(parcel->image()->bytes.span(), image.bytes.span()));
}

class KvStoreTest : public testing::Test {
 protected:
  KvStoreTest() : parent_(fs::temp_directory_path() / ("rondo_kv_store_" + std::to_string(::getpid()))) {
    make();
  }
  ~KvStoreTest() override {
    store_.reset();
    fs::remove_all(parent_);
  }

  void make() {
    auto files = KvFiles::create(parent_).value();
    files_ = files.get();
    store_ = std::make_unique<KvStore>(std::move(files));
  }
  int num_files() const {
    files_->settle();
    return static_cast<int>(
        std::ranges::count_if(fs::directory_iterator(files_->folder()),
                              [](const auto& entry) { return entry.path().extension() == ".kv"; }));
  }

  fs::path the_file() const {
    for (const auto& entry : fs::directory_iterator(files_->folder()))
      if (entry.path().extension() == ".kv") return entry.path();
    return {};
  }

  fs::path parent_;
  KvFiles* files_ = nullptr;
  std::unique_ptr<KvStore> store_;
};

TEST_F(KvStoreTest, WhatGoesInComesOut) {
  const auto image = image_of(3);
  for (const bool to_disk : {false, true}) {
    for (const bool ahead : {false, true}) {
      store_->put(RequestId(1), parcel_of(image));
      if (to_disk) {
        store_->move_to_disk(RequestId(1));
        EXPECT_EQ(num_files(), 1);
      }
      if (ahead) store_->prefetch(RequestId(1));
      expect_equal(store_->take(RequestId(1)), *image);
      EXPECT_EQ(num_files(), 0);
      EXPECT_EQ(store_->take(RequestId(1)), nullptr);
    }
  }
  EXPECT_EQ(files_->num_lost(), 0);
}

TEST_F(KvStoreTest, AParcelThatIsNotFilledYetIsWrittenLaterOrNeverNeedsTheDisk) {
  const auto early = std::make_shared<Parcel>(), late = std::make_shared<Parcel>();
  store_->put(RequestId(1), early);
  store_->put(RequestId(2), late);
  store_->move_to_disk(RequestId(1));
  store_->move_to_disk(RequestId(2));
  EXPECT_EQ(store_->take(RequestId(1)), early);
  late->fill(image_of(2));
  while (files_->bytes_written() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(num_files(), 1);
  expect_equal(store_->take(RequestId(2)), *image_of(2));
}

TEST_F(KvStoreTest, ManyRequestsThroughTheDiskInAnyOrder) {
  for (int i = 1; i < 60; ++i) {
    store_->put(RequestId(i), parcel_of(image_of(i)));
    store_->move_to_disk(RequestId(i));
    if (i % 3 == 0) store_->prefetch(RequestId(i / 3));
  }
  for (int i = 41; i < 52; ++i) store_->drop(RequestId(i));
  for (int i = 59; i > 0; --i) {
    const auto parcel = store_->take(RequestId(i));
    if (parcel != nullptr) expect_equal(parcel, *image_of(i));
    EXPECT_EQ(parcel == nullptr, i > 40 && i < 52) << i;
  }
  EXPECT_EQ(num_files(), 0);
}

TEST_F(KvStoreTest, LostAndDamagedFilesAreEmptyParcels) {
  for (const char* what : {"gone", "short", "damaged"}) {
    store_->put(RequestId(1), parcel_of(image_of(1)));
    store_->move_to_disk(RequestId(1));
    ASSERT_EQ(num_files(), 1);
    const fs::path file = the_file();
    std::string bytes = read_file(file).value();
    if (what == std::string("short")) bytes.pop_back();
    bytes.back() = static_cast<char>(~bytes.back());
    ASSERT_TRUE(write_file_durable(file, bytes));
    if (what == std::string("gone")) fs::remove(file);
    const auto parcel = store_->take(RequestId(1));
    wait_for(*parcel);
    EXPECT_EQ(parcel->image(), nullptr) << what;
    EXPECT_EQ(num_files(), 0);
  }
  EXPECT_EQ(files_->num_lost(), 2) << "one that is gone may never have been written";
}

TEST_F(KvStoreTest, WhatCannotBeWrittenIsLostAndNothingElse) {
  const fs::path folder = files_->folder();
  fs::remove_all(folder);
  for (int i = 0; i < 3; ++i) {
    store_->put(RequestId(i), parcel_of(image_of(1)));
    store_->move_to_disk(RequestId(i));
  }
  files_->settle();
  EXPECT_EQ(files_->num_lost(), 3);
  const auto parcel = store_->take(RequestId(1));
  wait_for(*parcel);
  EXPECT_EQ(parcel->image(), nullptr);
}

TEST_F(KvStoreTest, ClearLeavesNothing) {
  const auto never = std::make_shared<Parcel>();
  store_->put(RequestId(0), never);
  store_->move_to_disk(RequestId(0));
  for (int i = 1; i < 5; ++i) {
    store_->put(RequestId(i), parcel_of(image_of(i)));
    if (i % 2 == 0) store_->move_to_disk(RequestId(i));
  }
  store_->clear();
  EXPECT_EQ(num_files(), 0);
  EXPECT_EQ(store_->take(RequestId(1)), nullptr);
}

TEST_F(KvStoreTest, FoldersOfTheLivingStayAndThoseOfTheDeadGo) {
  const fs::path dead = parent_ / "rondo_kv_dead", others = parent_ / "rondo_kv_results";
  fs::create_directory(others);  // of that name by chance
  ASSERT_TRUE(write_file_durable(others / "notes.kv", "precious"));
  const pid_t child = ::fork();
  if (child == 0) {
    const auto folder = KvFolder::create(parent_);
    std::error_code ignored;
    if (folder) fs::rename(folder->path(), dead, ignored);
    std::ignore = write_file_durable(dead / "7.kv", "left behind");
    ::_exit(0);  // without a destructor: as if killed
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(fs::exists(dead));
  const fs::path mine = files_->folder();
  const auto another = KvFolder::create(parent_).value();
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(mine));
  EXPECT_TRUE(fs::exists(others / "notes.kv"));
  EXPECT_NE(another.path(), mine);
}

TEST_F(KvStoreTest, WhatOthersPutIntoADeadFolderStays) {
  const fs::path dead = parent_ / "rondo_kv_dead";
  fs::create_directory(dead);
  for (const char* name : {".lock", "1.kv", "thesis.txt"}) ASSERT_TRUE(write_file_durable(dead / name, "x"));
  const auto another = KvFolder::create(parent_).value();
  EXPECT_FALSE(fs::exists(dead / "1.kv"));
  EXPECT_TRUE(fs::exists(dead / "thesis.txt"));
}

TEST_F(KvStoreTest, AFolderThatCannotBeWrittenIsAnErrorAtTheStart) {
  const auto files = KvFiles::create("/proc/no/such/folder");
  ASSERT_FALSE(files.has_value());
  EXPECT_EQ(files.error().code(), Code::kIo);
  EXPECT_NE(files.error().message().find("rollout.disk_kv_folder"), std::string::npos);
}

TEST_F(KvStoreTest, APromptServesManyUntilItIsDropped) {
  const GroupId group(3);
  EXPECT_EQ(store_->prompt(group), nullptr);
  const auto image = image_of(2);
  store_->put_prompt(group, parcel_of(image));
  store_->drop(RequestId(3));  // another thing, though of the same number
  for (int i = 0; i < 2; ++i) expect_equal(store_->prompt(group), *image);
  store_->drop_prompt(group);
  EXPECT_EQ(store_->prompt(group), nullptr);
  store_->put_prompt(group, parcel_of(image));
  store_->clear();
  EXPECT_EQ(store_->prompt(group), nullptr);
}

}  // namespace
}  // namespace rondo::rollout
