#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/softmax.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <algorithm>
#include <limits>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/register.h"

HWY_BEFORE_NAMESPACE();
namespace rondo::kernels::HWY_NAMESPACE {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// x / T, or x itself where T = 1.
struct Scaled {
  VF temperature;
  HWY_INLINE VF operator()(VF x) const { return hn::Div(x, temperature); }
};
struct Unscaled {
  HWY_INLINE VF operator()(VF x) const { return x; }
};

template <class Body>
HWY_INLINE void with_temperature(float temperature, const Body& body) {
  if (temperature == 1.0F)
    body(Unscaled());
  else
    body(Scaled{hn::Set(F32(), temperature)});
}

struct Extremes {
  float low;
  float high;
};

// Least and greatest logit, [NaN, NaN] if one is NaN. The order of comparisons does not show: no rounding,
// and the sign of a zero is dropped.
Extremes extremes(const float* logits, std::int64_t vocab) {
  const F32 d;
  VF low = hn::Set(d, kInfinity), high = hn::Set(d, -kInfinity);
  VF nan = hn::Zero(d);
  for_each_vector(vocab, [&](std::int64_t i, auto io) {
    const VF x = io.load(logits + i);
    low = keep_lanes(io, hn::Min(low, x), low);
    high = keep_lanes(io, hn::Max(high, x), high);
    nan = hn::Or(nan, hn::VecFromMask(d, hn::IsNaN(x)));
  });
  if (!hn::AllFalse(d, hn::IsNaN(nan))) return {kNaN, kNaN};
  return {hn::GetLane(hn::MinOfLanes(d, low)) + 0.0F, hn::GetLane(hn::MaxOfLanes(d, high)) + 0.0F};
}

// The sums over one part of the vocabulary.
template <class Scale>
HWY_INLINE void part_sums(const float* logits, std::int64_t count, float max, Scale scale, float* sum,
                          float* weighted) {
  const VF top = hn::Set(F32(), max);
  Lanes16 sums, products;
  for_each_in_lanes(count, [&](std::int64_t i, auto io, int j) {
    const VF x = hn::Sub(scale(io.load(logits + i)), top);
    const VF e = exp(x);
    sums.v[j] = keep_lanes(io, hn::Add(sums.v[j], e), sums.v[j]);
    products.v[j] = keep_lanes(io, fma(e, x, products.v[j]), products.v[j]);
  });
  *sum = sums.combine();
  *weighted = products.combine();
}

// The fixed tree of neighbours over the parts, in place.
float combine_chains(float* parts, std::int32_t chains) {
  for (std::int32_t step = 1; step < chains; step *= 2)
    for (std::int32_t i = 0; i + step < chains; i += 2 * step) parts[i] += parts[i + step];
  return parts[0];
}

SoftmaxStats softmax_stats(const float* logits, std::int64_t vocab, float temperature, std::int32_t chains) {
  const auto [low, high] = extremes(logits, vocab);
  const float max = high / temperature;  // division by a positive number keeps the order
  const float spread = max - low / temperature;
  if (!(spread < kInfinity)) return {kNaN, kNaN, kNaN};
  float sums[kMaxChains] = {}, products[kMaxChains] = {};
  const std::int64_t width = (vocab + chains - 1) / chains;
  with_temperature(temperature, [&](auto scale) {
    for (std::int32_t part = 0; part < chains; ++part) {
      const std::int64_t begin = std::min(vocab, part * width), end = std::min(vocab, begin + width);
      part_sums(logits + begin, end - begin, max, scale, &sums[part], &products[part]);
    }
  });
  return {max, combine_chains(sums, chains), combine_chains(products, chains)};
}

// The gradient of softmax_grad at all places as if none were the target, or at the target.
struct RowGradient {
  VF max, sum, log_sum, entropy, a, minus_b;

  template <class Scale>
  HWY_INLINE VF operator()(VF logit, VF is_target, Scale scale) const {
    const VF x = hn::Sub(scale(logit), max);
    const VF p = hn::Div(exp(x), sum);
    const VF surprise = hn::Mul(p, hn::Add(hn::Sub(x, log_sum), entropy));
    return scale(fma(minus_b, surprise, hn::Mul(a, hn::Sub(is_target, p))));
  }
};

void softmax_grad(const SoftmaxGradArgs& args) {
  const F32 d;
  const float log_sum = hn::GetLane(log(hn::Set(d, args.stats.sum)));
  const RowGradient gradient{.max = hn::Set(d, args.stats.max),
                             .sum = hn::Set(d, args.stats.sum),
                             .log_sum = hn::Set(d, log_sum),
                             .entropy = hn::Set(d, log_sum - args.stats.weighted / args.stats.sum),
                             .a = hn::Set(d, args.dlogprob),
                             .minus_b = hn::Set(d, -args.dentropy)};
  with_temperature(args.temperature, [&](auto scale) {
    const bool has_target = args.target >= 0;
    // Read before an alias is overwritten.
    const VF target_logit = hn::Set(d, has_target ? args.logits[args.target] : args.stats.max);
    const VF at_target = gradient(target_logit, hn::Set(d, 1.0F), scale);
    const VF zero = hn::Zero(d);
    for_each_vector(args.vocab, [&](std::int64_t i, auto io) {
      io.store(gradient(io.load(args.logits + i), zero, scale), args.dlogits + i);
    });
    if (has_target) args.dlogits[args.target] = hn::GetLane(at_target);
  });
}

// trunc(x) as integers, for 0 <= x < 2^52: exact in fp32, then in fp64, whose low bits are the integer after
// adding 2^52.
HWY_INLINE void store_truncated(VF x, std::uint64_t* out) {
  const hn::ScalableTag<double> dd;
  const hn::RebindToUnsigned<decltype(dd)> du;
  const hn::Rebind<float, decltype(dd)> df;
  const auto magic = hn::Set(dd, 0x1p52);
  alignas(64) float whole[kLanes];
  hn::Store(hn::Trunc(x), F32(), whole);
  for (std::size_t i = 0; i < kLanes; i += hn::MaxLanes(dd)) {
    const auto shifted = hn::Add(hn::PromoteTo(dd, hn::Load(df, whole + i)), magic);
    hn::StoreU(hn::Xor(hn::BitCast(du, shifted), hn::BitCast(du, magic)), du, out + i);
  }
}

HWY_INLINE void store_weights(WholeVector /*io*/, VF x, std::uint64_t* out) {
  store_truncated(x, out);
}
HWY_INLINE void store_weights(PartVector io, VF x, std::uint64_t* out) {
  std::uint64_t buffer[kLanes];
  store_truncated(x, buffer);
  std::memcpy(out, buffer, io.count * sizeof(std::uint64_t));
}

void sampling_weights(const float* logits, std::int64_t vocab, float temperature, float max,
                      std::uint64_t* weights) {
  const VF top = hn::Set(F32(), max);
  const VF unit = hn::Set(F32(), 0x1p40F);
  with_temperature(temperature, [&](auto scale) {
    for_each_vector(vocab, [&](std::int64_t i, auto io) {
      const VF e = exp(hn::Sub(scale(io.load(logits + i)), top));
      store_weights(io, hn::Mul(e, unit), weights + i);
    });
  });
}

template <class Function>
HWY_INLINE void map(const float* x, float* out, std::int64_t count, const Function& function) {
  for_each_vector(count, [&](std::int64_t i, auto io) { io.store(function(io.load(x + i)), out + i); });
}

void exp_row(const float* x, float* out, std::int64_t count) {
  map(x, out, count, [](VF v) { return exp(v); });
}
void log_row(const float* x, float* out, std::int64_t count) {
  map(x, out, count, [](VF v) { return log(v); });
}
void sigmoid_row(const float* x, float* out, std::int64_t count) {
  map(x, out, count, [](VF v) { return sigmoid(v); });
}

void softmax_entries(OpTable& table) {
  table.softmax_stats = softmax_stats;
  table.softmax_grad = softmax_grad;
  table.sampling_weights = sampling_weights;
  table.exp = exp_row;
  table.log = log_row;
  table.sigmoid = sigmoid_row;
}

}  // namespace
}  // namespace rondo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::kernels {
HWY_EXPORT(softmax_entries);

void cpu::fill_softmax(OpTable& table) {
  HWY_DYNAMIC_DISPATCH(softmax_entries)(table);
}

}  // namespace rondo::kernels
#endif  // HWY_ONCE
