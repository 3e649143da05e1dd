// read_all and fma_burst: how fast this target can read and multiply at best.
#include "kernels/cpu/register.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/limits.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include "kernels/cpu/fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::kernels::HWY_NAMESPACE {
namespace {

std::uint64_t read_all(const std::byte* data, std::size_t bytes) {
  const hn::ScalableTag<std::uint64_t> d;
  const auto* words = reinterpret_cast<const std::uint64_t*>(data);
  constexpr std::size_t kStep = hn::MaxLanes(d);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (std::size_t i = 0; i < bytes / 8; i += 4 * kStep) {
    a = hn::Xor(a, hn::Load(d, words + i));
    b = hn::Xor(b, hn::Load(d, words + i + kStep));
    c = hn::Xor(c, hn::Load(d, words + i + 2 * kStep));
    e = hn::Xor(e, hn::Load(d, words + i + 3 * kStep));
  }
  alignas(64) std::uint64_t lanes[kStep];
  hn::Store(hn::Xor(hn::Xor(a, b), hn::Xor(c, e)), d, lanes);
  std::uint64_t result = 0;
  for (const std::uint64_t lane : lanes) result ^= lane;
  return result;
}

std::int64_t fma_burst(std::int64_t rounds, float* sink) {
  constexpr int kSums = 12;  // more than latency times units, fewer than registers
  constexpr int kRepeats = 8;
  const F32 d;
  VF sums[kSums];
#pragma GCC unroll 16
  for (int i = 0; i < kSums; ++i) sums[i] = hn::Set(d, static_cast<float>(i));
  const VF factor = hn::Set(d, *sink + 0.5F);
  for (std::int64_t n = 0; n < rounds; ++n) {
#pragma GCC unroll 16
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
#pragma GCC unroll 16
      for (int i = 0; i < kSums; ++i) sums[i] = fma(sums[i], factor, factor);
    }
  }
  VF total = sums[0];
#pragma GCC unroll 16
  for (int i = 1; i < kSums; ++i) total = hn::Add(total, sums[i]);
  *sink += hn::GetLane(total);
  return rounds * kRepeats * kSums * kLanes * 2;
}

}  // namespace

void fill_limits_target(OpTable& table) {
  table.read_all = read_all;
  table.fma_burst = fma_burst;
}

}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::kernels {

HWY_EXPORT(fill_limits_target);

void cpu::fill_limits(OpTable& table) {
  HWY_DYNAMIC_DISPATCH(fill_limits_target)(table);
}

}  // namespace rondo::kernels
#endif  // HWY_ONCE
