#include "base/rng.h"

#include "base/check.h"

namespace rondo {
namespace {

__extension__ using Uint128 = unsigned __int128;

}  // namespace

std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key) {
  constexpr std::uint32_t kMul0 = 0xD2511F53u, kMul1 = 0xCD9E8D57u;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{kMul0} * counter[0];
    const std::uint64_t p1 = std::uint64_t{kMul1} * counter[2];
    const auto hi0 = static_cast<std::uint32_t>(p0 >> 32), lo0 = static_cast<std::uint32_t>(p0);
    const auto hi1 = static_cast<std::uint32_t>(p1 >> 32), lo1 = static_cast<std::uint32_t>(p1);
    counter = {hi1 ^ counter[1] ^ key[0], lo1, hi0 ^ counter[3] ^ key[1], lo0};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

std::array<std::uint32_t, 4> Rng::words(RngCounter c) const {
  return philox4x32_10({c.step, c.ordinal, c.sample, c.position}, key_);
}

std::uint64_t Rng::bits64(RngCounter counter) const {
  const auto w = words(counter);
  return (std::uint64_t{w[1]} << 32) | w[0];
}

std::uint64_t Rng::below(RngCounter counter, std::uint64_t bound) const {
  RONDO_CHECK_GT(bound, std::uint64_t{0});
  const auto w = words(counter);
  const std::uint64_t hi = (std::uint64_t{w[1]} << 32) | w[0];
  const std::uint64_t lo = (std::uint64_t{w[3]} << 32) | w[2];
  const Uint128 carry = (Uint128{lo} * bound) >> 64;
  return static_cast<std::uint64_t>((Uint128{hi} * bound + carry) >> 64);
}

}  // namespace rondo
