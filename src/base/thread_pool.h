// A persistent team of worker threads with a cheap barrier: spin briefly, then park.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace rondo {

/// A non-owning reference to a callable `void(int index)`; no allocation.
class TaskRef final {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, TaskRef>)
      TaskRef(F&& f)  // NOLINT(google-explicit-constructor,bugprone-forwarding-reference-overload)
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, int index) { (*static_cast<std::remove_reference_t<F>*>(object))(index); }) {}
  void operator()(int index) const { call_(object_, index); }

 private:
  void* object_;
  void (*call_)(void*, int);
};

/// Runs one function on all threads of a team and waits for all of them.
///
/// Does not divide work and keeps no queue: the caller derives each thread's share from its index, so what a
/// thread computes never depends on timing. One owner thread calls `run`; the callable must not call `run`
/// again. The owner is thread 0 of the team. Workers wait by spinning for a few microseconds, then park.
class ThreadPool final {
 public:
  /// Starts `num_threads - 1` workers; num_threads >= 1.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  /// Calls `task(i)` once for each i in [0, num_threads), in parallel; returns when all are done.
  void run(TaskRef task);

  /// Calls `body(begin, end)` on contiguous shares of [0, count), each a multiple of `grain` but the last.
  template <class F>
  void parallel_for(std::int64_t count, std::int64_t grain, F&& body) {
    const std::int64_t grains = (count + grain - 1) / grain;
    if (num_threads_ == 1 || grains <= 1) {
      if (count > 0) body(std::int64_t{0}, count);
      return;
    }
    run([&](int index) {
      const std::int64_t begin = grains * index / num_threads_ * grain;
      const std::int64_t end = grains * (index + 1) / num_threads_ * grain;
      if (begin < end) body(begin, end < count ? end : count);
    });
  }

 private:
  struct State;
  int num_threads_;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
