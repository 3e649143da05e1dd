// EngineClient: what the dispatcher asks of an inference instance, and what the instance answers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/id.h"
#include "kv/image.h"
#include "rollout/acceptance.h"
#include "rollout/kv_ledger.h"

namespace rondo::rollout {

/// The KV of a parked request, or of a prompt, on its way from one place to another.
///
/// One side fills it, once: with an image, or with none if the KV is lost and must be computed again. Filling
/// and reading may happen on different threads; the first fill counts.
class Parcel final {
 public:
  void fill(std::shared_ptr<const kv::Image> image) {
    if (claimed_.exchange(true)) return;
    image_ = std::move(image);
    ready_.store(true, std::memory_order_release);
  }
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  /// Null: there is none. Only when ready.
  const std::shared_ptr<const kv::Image>& image() const { return image_; }

 private:
  std::atomic<bool> claimed_ = false;
  std::atomic<bool> ready_ = false;
  std::shared_ptr<const kv::Image> image_;
};

/// "Go on with this request for at most max_tokens new tokens."
struct ChunkOrder {
  RequestId request;
  GroupId group;
  std::int32_t generated = 0;             // tokens that the response has
  std::int32_t max_tokens = 0;            // 0: to the end
  DraftClass draft_class = {};            // probe or not, and how many siblings have finished
  std::shared_ptr<const Parcel> kv = {};  // null: it lies here, or is to be computed
};

/// What is asked about a group rather than about one of its requests.
struct GroupOrder {
  enum class Kind : std::uint8_t {
    kCopyPrompt,  // `parcel` gets the KV of the prompt, or none if it is not computed there
    kDropPrompt,  // it need not be kept beyond the samples that are there
    kForget       // the group is complete, or given up: neither prompt nor drafts are needed
  };
  Kind kind = Kind::kForget;
  GroupId group;
  std::shared_ptr<Parcel> parcel = {};  // of kCopyPrompt
};

/// What an instance reports.
struct InstanceEvent {
  enum class Kind : std::uint8_t {
    kChunkDone,
    kFinished,
    kFailed,  // the instance is gone; others may still do its work
    kError    // the request or the model is at fault: it would be the same anywhere
  };
  Kind kind = Kind::kChunkDone;
  InstanceId instance;
  RequestId request = {};
  std::int32_t total_tokens = 0;  // of the response so far
  std::int64_t begin_ns = 0;      // of the chunk, on the instance's clock
  std::int64_t end_ns = 0;
  std::string failure = {};  // kFailed, kError: why
};

/// One inference instance, seen from the dispatcher. Orders are carried out in the order given, so that the
/// report of a chunk's end says that all orders before it are done; answers come as events. Only settle()
/// waits.
class EngineClient {
 public:
  virtual ~EngineClient() = default;
  virtual InstanceSpec spec() const = 0;
  virtual void run_chunk(ChunkOrder order) = 0;
  /// The request leaves, if it is there; `parcel`, if there is one, gets its KV if it is parked.
  virtual void hand_over(RequestId request, std::shared_ptr<Parcel> parcel) = 0;
  virtual void group_order(GroupOrder order) = 0;
  /// New weights: all KV here is void. Nothing runs.
  virtual void drop_kv() = 0;
  /// Waits until all orders so far are carried out and nothing runs, or the instance has failed.
  virtual void settle() = 0;
  /// Counts up while the instance is alive and has work.
  virtual std::int64_t heartbeat() const = 0;
  /// It has failed, or is taken for failed: no event and no change of a response comes from it after this.
  virtual void abandon() = 0;
};

}  // namespace rondo::rollout
