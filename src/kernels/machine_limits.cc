#include "kernels/machine_limits.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "base/aligned_buffer.h"
#include "base/clock.h"

namespace rondo::kernels {
namespace {

constexpr int kRepeats = 10;
constexpr double kBurstSeconds = 0.02;  // long enough for the clock rate to settle

// Seconds of the fastest of kRepeats runs of `task` on all threads.
double best_seconds(ThreadPool& pool, TaskRef task) {
  const SteadyClock clock;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepeats; ++i) {
    const double start = clock.now_s();
    pool.run(task);
    best = std::min(best, clock.now_s() - start);
  }
  return best;
}

}  // namespace

double measure_read_bandwidth(const Context& ctx, std::size_t bytes) {
  constexpr std::size_t kGrain = 4096;
  const auto threads = static_cast<std::size_t>(ctx.pool->num_threads());
  const std::size_t per_thread = std::max<std::size_t>(1, bytes / threads / kGrain) * kGrain;
  const AlignedBuffer<std::byte> buffer(per_thread * threads);
  std::atomic<std::uint64_t> sink = 0;  // keeps the reads alive
  const double seconds = best_seconds(*ctx.pool, [&](int index) {
    sink ^= ctx.table->read_all(buffer.data() + static_cast<std::size_t>(index) * per_thread, per_thread);
  });
  return static_cast<double>(buffer.bytes()) / seconds;
}

double measure_fma_peak(const Context& ctx) {
  const SteadyClock clock;
  float sink = 0;
  std::int64_t rounds = 1;
  for (double seconds = 0; seconds < kBurstSeconds; rounds *= 2) {
    const double start = clock.now_s();
    ctx.table->fma_burst(rounds, &sink);
    seconds = clock.now_s() - start;
  }
  std::atomic<std::int64_t> operations = 0;
  const double seconds = best_seconds(*ctx.pool, [&](int) {
    float own = 0;
    operations += ctx.table->fma_burst(rounds, &own);
  });
  return static_cast<double>(operations) / kRepeats / seconds;
}

}  // namespace rondo::kernels
