// Cosines and sines of rotary position embedding, the same bits on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace rondo::kernels {

/// What RopeArgs reads: cos and sin of position * inverse_frequency[i], each [positions, half] in fp32.
struct RopeTables {
  std::int64_t positions = 0;
  std::int32_t half = 0;  // head_dim / 2
  std::vector<float> cosine;
  std::vector<float> sine;
};

/// Most positions a table may have: the range of the exact reduction of angles.
inline constexpr std::int64_t kMaxRopePositions = std::int64_t{1} << 20;

/// theta^(-2i / head_dim) for i < head_dim / 2, in the steps of `transformers`: the exponent, the power and
/// its inverse are each rounded to fp32. Precondition: head_dim even, theta >= 1 and finite.
std::vector<float> rope_inverse_frequencies(std::int32_t head_dim, float theta);

/// Tables for `positions` rows and the given inverse frequencies, each in [0, 1]. The angle is rounded to
/// fp32 as in `transformers`; its cosine and sine are computed in fp64 within 2^-50 and then rounded, so they
/// are the correctly rounded ones except where the true value lies that close to a tie (about one in 2^25).
/// kInvalidArgument if there are more positions than kMaxRopePositions or a frequency is out of range.
Result<RopeTables> make_rope_tables(std::int64_t positions, std::span<const float> inverse_frequencies);

/// The two together, for models without scaled frequencies. kInvalidArgument also for an odd head_dim and a
/// theta below 1.
Result<RopeTables> make_rope_tables(std::int64_t positions, std::int32_t head_dim, float theta);

}  // namespace rondo::kernels
