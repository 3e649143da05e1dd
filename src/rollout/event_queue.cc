#include "rollout/event_queue.h"

#include <iterator>
#include <utility>

namespace rondo::rollout {

void EventQueue::push(std::vector<InstanceEvent>& events) {
  if (events.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    events_.insert(events_.end(), std::make_move_iterator(events.begin()),
                   std::make_move_iterator(events.end()));
  }
  events.clear();
  filled_.notify_one();
}

void EventQueue::push(InstanceEvent event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  filled_.notify_one();
}

void EventQueue::pop(std::vector<InstanceEvent>& out, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  filled_.wait_for(lock, timeout, [this] { return !events_.empty(); });
  out.insert(out.end(), std::make_move_iterator(events_.begin()), std::make_move_iterator(events_.end()));
  events_.clear();
}

}  // namespace rondo::rollout
