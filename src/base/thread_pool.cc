#include "base/thread_pool.h"

#include <thread>
#include <vector>

#include "base/check.h"

namespace rondo {
namespace {

// A wait for the rest of the team first spins, as long as the gaps between a decode step's kernels; then
// gives way to other threads of its core but stays awake, for waking a parked thread costs tens of
// microseconds, most of all on a virtual machine; and parks at last.
constexpr int kSpins = 2000;  // of a load each: about 2 us
constexpr int kYields = 200;  // of a system call each: about 100 us

// Waits until `value` differs from `old`; returns the new value.
std::uint32_t wait_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    const std::uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
  }
  for (int i = 0; i < kYields; ++i) {
    const std::uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    std::this_thread::yield();
  }
  for (;;) {
    value.wait(old, std::memory_order_acquire);
    const std::uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
  }
}

}  // namespace

struct ThreadPool::State {
  // Separate lines: the owner writes `epoch`, the workers write `pending`.
  alignas(64) std::atomic<std::uint32_t> epoch{0};
  alignas(64) std::atomic<std::uint32_t> pending{0};
  alignas(64) const TaskRef* task = nullptr;  // null with a new epoch: stop
  std::vector<std::thread> workers;

  // Here rather than in the pool, whose constructor may fail to start one more thread.
  ~State() {
    task = nullptr;
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  void work(int index) {
    std::uint32_t seen = 0;
    for (;;) {
      seen = wait_change(epoch, seen);
      if (task == nullptr) return;
      (*task)(index);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads), state_(std::make_unique<State>()) {
  RONDO_CHECK_GE(num_threads, 1);
  for (int i = 1; i < num_threads; ++i) state_->workers.emplace_back([this, i] { state_->work(i); });
}

ThreadPool::~ThreadPool() = default;

void ThreadPool::run(TaskRef task) {
  if (num_threads_ == 1) {
    task(0);
    return;
  }
  state_->task = &task;
  state_->pending.store(static_cast<std::uint32_t>(num_threads_ - 1), std::memory_order_relaxed);
  state_->epoch.fetch_add(1, std::memory_order_release);
  state_->epoch.notify_all();
  task(0);
  std::uint32_t left = state_->pending.load(std::memory_order_acquire);
  while (left != 0) left = wait_change(state_->pending, left);
}

}  // namespace rondo
