// KvStore: the KV of parked requests and idle prompts outside the instances, in host memory and on disk.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/id.h"
#include "rollout/engine_client.h"
#include "rollout/kv_files.h"

namespace rondo::rollout {

/// Keeps parcels by request, and of prompts by group. What is where, and how much fits, the scheduler
/// decides: this holds the bytes.
///
/// No call waits for an instance, nor for the disk but to keep few writes under way: a parcel that comes from
/// the disk is filled later. KV that is lost on the way is an empty parcel. One owner thread; parcels may be
/// filled by others.
class KvStore final {
 public:
  /// `files` may be null: then nothing may be moved to disk.
  explicit KvStore(std::unique_ptr<KvFiles> files) : files_(std::move(files)) {}

  /// To host memory.
  void put(RequestId request, std::shared_ptr<Parcel> parcel);
  /// From host memory to disk; nothing if the request has nothing there.
  void move_to_disk(RequestId request);
  /// From disk to host memory; nothing if the request has nothing there.
  void prefetch(RequestId request);
  /// The request's parcel, which leaves the store; null if it has none.
  std::shared_ptr<const Parcel> take(RequestId request);
  void drop(RequestId request);

  // Prompts, in host memory alone; a prompt serves any number of requests.
  void put_prompt(GroupId group, std::shared_ptr<Parcel> parcel);
  /// Null if there is none.
  std::shared_ptr<const Parcel> prompt(GroupId group) const;
  void drop_prompt(GroupId group);

  /// Drops everything, and returns when the disk is done with it.
  void clear();

 private:
  struct Entry {
    std::shared_ptr<Parcel> parcel;  // null: on disk
    std::int64_t file = 0;
  };

  std::unique_ptr<KvFiles> files_;
  std::unordered_map<RequestId, Entry> entries_;
  std::unordered_map<GroupId, std::shared_ptr<const Parcel>> prompts_;
};

}  // namespace rondo::rollout
