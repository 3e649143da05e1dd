// EventQueue: instances put their events in, the dispatcher takes them out.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "rollout/engine_client.h"

namespace rondo::rollout {

/// An unbounded queue, many writers, one reader.
class EventQueue final {
 public:
  void push(std::vector<InstanceEvent>& events);
  void push(InstanceEvent event);
  /// Appends all events to `out`, waiting up to `timeout` for the first.
  void pop(std::vector<InstanceEvent>& out, std::chrono::milliseconds timeout);

 private:
  std::mutex mutex_;
  std::condition_variable filled_;
  std::vector<InstanceEvent> events_;
};

}  // namespace rondo::rollout
