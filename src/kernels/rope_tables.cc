#include "kernels/rope_tables.h"

#include <bit>
#include <cmath>
#include <cstddef>

#include "base/check.h"

// Plain fp64 additions, multiplications and divisions only: libm's functions differ between machines.
namespace rondo::kernels {
namespace {

constexpr double kLn2High = 0x1.62e42fee00000p-1;  // 32 bits, so that n * kLn2High is exact
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kRoundMagic = 0x1.8p52;  // adding it rounds to an integer

double nearest_integer(double x) {
  return (x + kRoundMagic) - kRoundMagic;
}

// ln(x) for normal x >= 1: x = 2^n * m with m in [sqrt(1/2), sqrt(2)), ln(m) = 2 atanh((m - 1) / (m + 1)).
double natural_log(double x) {
  auto bits = std::bit_cast<std::uint64_t>(x);
  auto n = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u);
  if (m > 0x1.6a09e667f3bcdp0) {
    m *= 0.5;
    ++n;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double square = s * s;
  double series = 0.0;
  for (int k = 23; k >= 1; k -= 2) series = series * square + 1.0 / k;  // |s| < 0.172: the rest is < 2^-60
  return n * kLn2High + (n * kLn2Low + 2.0 * s * series);
}

// e^x for 0 <= x < 700: x = n ln(2) + r, Taylor series of e^r for |r| <= ln(2) / 2.
double exponential(double x) {
  const double n = nearest_integer(x * 0x1.71547652b82fep0);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double series = 1.0;
  for (int k = 14; k >= 1; --k) series = 1.0 + series * r / k;  // the rest is < 2^-60
  const auto exponent = static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023);
  return series * std::bit_cast<double>(exponent << 52);
}

struct CosSin {
  double cosine;
  double sine;
};

// Both for |r| <= pi / 4, as Taylor series whose rest is < 2^-60.
CosSin small_angle(double r) {
  const double square = r * r;
  double cosine = 1.0, sine = 1.0;
  for (int k = 18; k >= 2; k -= 2) cosine = 1.0 - cosine * square / (k * (k - 1));
  for (int k = 19; k >= 3; k -= 2) sine = 1.0 - sine * square / (k * (k - 1));
  return {cosine, sine * r};
}

// Both for 0 <= angle <= 2^20. With pi / 2 in three pieces, n < 2^20 times either of the first two (33 bits
// each) is exact, and so are the differences wherever they are small.
CosSin cos_sin(double angle) {
  constexpr double kHalfPiA = 0x1.921fb54400000p0;
  constexpr double kHalfPiB = 0x1.0b4611a600000p-34;
  constexpr double kHalfPiC = 0x1.3198a2e037073p-69;
  const double n = nearest_integer(angle * 0x1.45f306dc9c883p-1);
  const double r = ((angle - n * kHalfPiA) - n * kHalfPiB) - n * kHalfPiC;
  const auto [c, s] = small_angle(r);
  switch (static_cast<std::int64_t>(n) & 3) {
    case 0:
      return {c, s};
    case 1:
      return {-s, c};
    case 2:
      return {-c, -s};
    default:
      return {s, -c};
  }
}

}  // namespace

std::vector<float> rope_inverse_frequencies(std::int32_t head_dim, float theta) {
  RONDO_CHECK(head_dim > 0 && head_dim % 2 == 0);
  RONDO_CHECK(theta >= 1.0F && std::isfinite(theta));
  const double log_theta = natural_log(static_cast<double>(theta));
  std::vector<float> result;
  for (std::int32_t i = 0; i < head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    const auto power = static_cast<float>(exponential(static_cast<double>(exponent) * log_theta));
    result.push_back(1.0F / power);
  }
  return result;
}

Result<RopeTables> make_rope_tables(std::int64_t positions, std::span<const float> inverse_frequencies) {
  if (positions < 0 || positions > kMaxRopePositions)
    return fail(Code::kInvalidArgument,
                "rotary embedding covers at most {} positions, {} were asked for; lower the context length",
                kMaxRopePositions, positions);
  for (const float frequency : inverse_frequencies)
    if (!(frequency >= 0.0F && frequency <= 1.0F))
      return fail(Code::kInvalidArgument, "inverse frequency {} of the rotary embedding is not in [0, 1]",
                  frequency);
  RopeTables tables;
  tables.positions = positions;
  tables.half = static_cast<std::int32_t>(inverse_frequencies.size());
  const std::size_t size = static_cast<std::size_t>(positions) * inverse_frequencies.size();
  tables.cosine.reserve(size);
  tables.sine.reserve(size);
  for (std::int64_t position = 0; position < positions; ++position)
    for (const float frequency : inverse_frequencies) {
      const float angle = static_cast<float>(position) * frequency;
      const auto [cosine, sine] = cos_sin(static_cast<double>(angle));
      tables.cosine.push_back(static_cast<float>(cosine));
      tables.sine.push_back(static_cast<float>(sine));
    }
  return tables;
}

Result<RopeTables> make_rope_tables(std::int64_t positions, std::int32_t head_dim, float theta) {
  if (head_dim <= 0 || head_dim % 2 != 0)
    return fail(Code::kInvalidArgument, "rotary embedding needs an even head_dim, not {}", head_dim);
  if (!(theta >= 1.0F && std::isfinite(theta)))
    return fail(Code::kInvalidArgument, "rope_theta is {}; it must be a finite number of at least 1", theta);
  return make_rope_tables(positions, rope_inverse_frequencies(head_dim, theta));
}

}  // namespace rondo::kernels
