#include "rollout/kv_store.h"

#include <utility>

#include "base/check.h"

namespace rondo::rollout {

void KvStore::put(RequestId request, std::shared_ptr<Parcel> parcel) {
  entries_[request] = {.parcel = std::move(parcel)};
}

void KvStore::move_to_disk(RequestId request) {
  RONDO_CHECK(files_ != nullptr);
  const auto it = entries_.find(request);
  if (it == entries_.end() || it->second.parcel == nullptr) return;
  it->second.file = files_->write(std::move(it->second.parcel));
  it->second.parcel = nullptr;
}

void KvStore::prefetch(RequestId request) {
  const auto it = entries_.find(request);
  if (it == entries_.end() || it->second.parcel != nullptr) return;
  it->second.parcel = files_->read(it->second.file);
}

std::shared_ptr<const Parcel> KvStore::take(RequestId request) {
  prefetch(request);
  const auto it = entries_.find(request);
  if (it == entries_.end()) return nullptr;
  std::shared_ptr<const Parcel> parcel = std::move(it->second.parcel);
  entries_.erase(it);
  return parcel;
}

void KvStore::drop(RequestId request) {
  const auto it = entries_.find(request);
  if (it == entries_.end()) return;
  if (it->second.parcel == nullptr) files_->drop(it->second.file);
  entries_.erase(it);
}

void KvStore::put_prompt(GroupId group, std::shared_ptr<Parcel> parcel) {
  prompts_[group] = std::move(parcel);
}

std::shared_ptr<const Parcel> KvStore::prompt(GroupId group) const {
  const auto it = prompts_.find(group);
  return it == prompts_.end() ? nullptr : it->second;
}

void KvStore::drop_prompt(GroupId group) {
  prompts_.erase(group);
}

void KvStore::clear() {
  prompts_.clear();
  while (!entries_.empty()) drop(entries_.begin()->first);
  if (files_ != nullptr) files_->settle();
}

}  // namespace rondo::rollout
