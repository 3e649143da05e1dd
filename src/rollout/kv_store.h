// KvStore: the KV of parked requests outside the instances, in host memory and on disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <unordered_map>

#include "base/id.h"
#include "base/status.h"
#include "rollout/engine_client.h"

namespace rondo::rollout {

/// Keeps parcels by request. What is where, and how much fits, the scheduler decides: this holds the bytes.
///
/// A file holds one image: magic "rondokv1", first block, number of blocks and of tokens (int32 each, little
/// endian), the image's checksum (uint64), the bytes. A file that is short, damaged or gone is an image lost,
/// never an error of the run. One owner thread; parcels may be filled by others.
class KvStore final {
 public:
  /// Files go to a new folder of this store's own below `folder`, made when first needed and removed at the
  /// end: no other store, nor what one has left behind, is ever read or touched.
  explicit KvStore(std::filesystem::path folder);
  KvStore(const KvStore&) = delete;
  KvStore& operator=(const KvStore&) = delete;
  ~KvStore();

  /// To host memory.
  void put(RequestId request, std::shared_ptr<Parcel> parcel);
  /// From host memory to disk; waits for a parcel that is still on its way. On an error, or if the parcel
  /// came empty, the request has nothing here any more.
  Result<void> move_to_disk(RequestId request);
  /// The request's parcel, which leaves the store; null if it has none. Reads from disk; a damaged file gives
  /// an empty parcel.
  std::shared_ptr<const Parcel> take(RequestId request);
  void drop(RequestId request);
  void clear();

  std::int64_t bytes_written() const { return bytes_written_; }
  std::int64_t num_lost() const { return num_lost_; }

 private:
  struct Entry {
    std::shared_ptr<Parcel> parcel;  // null: on disk
  };
  std::filesystem::path file_of(RequestId request) const;
  void make_own_folder();

  std::filesystem::path parent_;
  std::filesystem::path folder_;  // its own; empty until it is made
  std::unordered_map<RequestId, Entry> entries_;
  std::int64_t bytes_written_ = 0;
  std::int64_t num_lost_ = 0;
};

}  // namespace rondo::rollout
