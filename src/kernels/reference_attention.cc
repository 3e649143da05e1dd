#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/float16.h"
#include "kernels/reference.h"
#include "kernels/reference_math.h"

namespace rondo::kernels::reference {
namespace {

float load(DType dtype, const std::byte* data, std::int64_t index) {
  const auto* half = reinterpret_cast<const std::uint16_t*>(data);
  switch (dtype) {
    case DType::kF16:
      return half_to_float(half[index]);
    case DType::kBF16:
      return bfloat16_to_float(half[index]);
    case DType::kF32:
      break;
  }
  return reinterpret_cast<const float*>(data)[index];
}

void store(DType dtype, float value, std::byte* data, std::int64_t index) {
  auto* half = reinterpret_cast<std::uint16_t*>(data);
  switch (dtype) {
    case DType::kF16:
      half[index] = float_to_half(value);
      return;
    case DType::kBF16:
      half[index] = float_to_bfloat16(value);
      return;
    case DType::kF32:
      break;
  }
  reinterpret_cast<float*>(data)[index] = value;
}

// Keys and values of one head at positions [0, end of the span) in fp32, [positions, head_dim].
struct SpanEntries {
  std::int32_t head_dim;
  std::vector<float> keys;
  std::vector<float> values;

  SpanEntries(const KvView& kv, std::int32_t head, const SequenceSpan& span) : head_dim(kv.head_dim) {
    for (std::int32_t p = 0; p < span.first_position + span.rows; ++p) {
      const std::int32_t block = span.block_table[p / kAttentionBlock];
      const std::int64_t slot = p % kAttentionBlock;
      for (std::int64_t d = 0; d < head_dim; ++d) {
        keys.push_back(load(kv.dtype, kv.keys(block, head), d * kAttentionBlock + slot));
        values.push_back(load(kv.dtype, kv.values(block, head), slot * head_dim + d));
      }
    }
  }
  const float* key(std::int32_t position) const {
    return keys.data() + static_cast<std::int64_t>(position) * head_dim;
  }
  const float* value(std::int32_t position) const {
    return values.data() + static_cast<std::int64_t>(position) * head_dim;
  }
};

// The chain over [0, count) of x * y.
float dot(const float* x, const float* y, std::int32_t count) {
  float sum = 0.0F;
  for (std::int32_t d = 0; d < count; ++d) sum = std::fma(x[d], y[d], sum);
  return sum;
}

// Continues a chain in each of `count` elements of y with factor * x.
void add_scaled(float factor, const float* x, std::int32_t count, float* y) {
  for (std::int32_t d = 0; d < count; ++d) y[d] = std::fma(factor, x[d], y[d]);
}

// Softmax statistics and weighted values, of one block or of all blocks so far.
struct Partial {
  float max;
  float sum;
  std::vector<float> out;
};

Partial attend_block(const SpanEntries& entries, float scale, const float* q, std::int32_t begin,
                     std::int32_t end) {
  const std::int32_t head_dim = entries.head_dim;
  std::vector<float> weights;
  float max = -std::numeric_limits<float>::infinity();
  for (std::int32_t p = begin; p < end; ++p) {
    weights.push_back(dot(q, entries.key(p), head_dim) * scale);
    max = std::max(max, weights.back());
  }
  max += 0.0F;
  Partial result = {max, 0.0F, std::vector<float>(static_cast<std::size_t>(head_dim), 0.0F)};
  float lanes[kReduceLanes] = {};
  for (std::int32_t p = begin; p < end; ++p) {
    const float weight = exp(weights[static_cast<std::size_t>(p - begin)] - max);
    lanes[(p - begin) % kReduceLanes] += weight;
    add_scaled(weight, entries.value(p), head_dim, result.out.data());
  }
  result.sum = combine_lanes(lanes);
  return result;
}

void append(Partial& total, const Partial& block) {
  const float max = std::max(total.max, block.max);
  const float keep = exp(total.max - max);
  const float take = exp(block.max - max);
  total.max = max;
  total.sum = std::fma(total.sum, keep, block.sum * take);
  for (std::size_t d = 0; d < total.out.size(); ++d)
    total.out[d] = std::fma(total.out[d], keep, block.out[d] * take);
}

void attend_row(const AttentionArgs& args, const SpanEntries& entries, const SequenceSpan& span,
                std::int32_t row, std::int32_t head) {
  const std::int32_t head_dim = entries.head_dim;
  const std::int64_t at = static_cast<std::int64_t>(span.first_row) + row;
  const float* q = args.q + at * args.ldq + static_cast<std::int64_t>(head) * head_dim;
  const std::int32_t end = span.first_position + row + 1;
  Partial total = attend_block(entries, args.scale, q, 0, std::min(end, kAttentionBlock));
  for (std::int32_t begin = kAttentionBlock; begin < end; begin += kAttentionBlock)
    append(total, attend_block(entries, args.scale, q, begin, std::min(end, begin + kAttentionBlock)));
  float* out = args.out + at * args.ldo + static_cast<std::int64_t>(head) * head_dim;
  for (std::int32_t d = 0; d < head_dim; ++d)
    out[d] = total.out[static_cast<std::size_t>(d)] / total.sum + 0.0F;
  if (args.stats == nullptr) return;
  args.stats[(at * args.heads + head) * 2] = total.max;
  args.stats[(at * args.heads + head) * 2 + 1] = total.sum;
}

void attention(const AttentionArgs& args) {
  const std::int32_t group = args.heads / args.kv->kv_heads;
  for (const SequenceSpan& span : args.spans) {
    const SpanEntries entries(*args.kv, args.kv_head, span);
    for (std::int32_t row = 0; row < span.rows; ++row)
      for (std::int32_t g = 0; g < group; ++g) attend_row(args, entries, span, row, args.kv_head * group + g);
  }
}

// Adds what one query row gives to its own gradient and to those of the positions it sees.
void attend_row_grad(const AttentionGradArgs& args, const SpanEntries& entries, std::size_t index,
                     std::int32_t row, std::int32_t head) {
  const SequenceSpan& span = args.spans[index];
  const std::int32_t head_dim = entries.head_dim;
  const std::int64_t at = static_cast<std::int64_t>(span.first_row) + row;
  const std::int64_t column = static_cast<std::int64_t>(head) * head_dim;
  const std::int64_t kv_column = static_cast<std::int64_t>(args.kv_head) * head_dim;
  const float* q = args.q + at * args.ldq + column;
  const float* out = args.out + at * args.ldo + column;
  const float* dout = args.dout + at * args.ldo + column;
  float* dq = args.dq + at * args.lddq + column;
  const float* stats = args.stats + (at * args.heads + head) * 2;
  float lanes[kReduceLanes] = {};
  for (std::int32_t d = 0; d < head_dim; ++d)
    lanes[d % kReduceLanes] = std::fma(dout[d], out[d], lanes[d % kReduceLanes]);
  const float correlation = combine_lanes(lanes);
  std::fill_n(dq, head_dim, 0.0F);
  for (std::int32_t p = 0; p <= span.first_position + row; ++p) {
    const float score = dot(q, entries.key(p), head_dim) * args.scale;
    const float weight = exp(score - stats[0]) / stats[1];
    const float ds = (weight * (dot(dout, entries.value(p), head_dim) - correlation)) * args.scale;
    const std::int64_t owner = args.position_rows[args.span_position_begin[index] + p];
    add_scaled(ds, entries.key(p), head_dim, dq);
    add_scaled(ds, q, head_dim, args.dk + owner * args.lddkv + kv_column);
    add_scaled(weight, dout, head_dim, args.dv + owner * args.lddkv + kv_column);
  }
  for (std::int32_t d = 0; d < head_dim; ++d) dq[d] += 0.0F;
}

void attention_grad(const AttentionGradArgs& args) {
  const std::int32_t group = args.heads / args.kv->kv_heads;
  const std::int32_t head_dim = args.kv->head_dim;
  const auto each_key_gradient = [&](auto change) {
    for (std::int64_t row = 0; row < args.rows; ++row) {
      const std::int64_t at = row * args.lddkv + static_cast<std::int64_t>(args.kv_head) * head_dim;
      for (std::int32_t d = 0; d < head_dim; ++d) {
        change(args.dk[at + d]);
        change(args.dv[at + d]);
      }
    }
  };
  each_key_gradient([](float& value) { value = 0.0F; });
  for (std::size_t i = 0; i < args.spans.size(); ++i) {
    const SpanEntries entries(*args.kv, args.kv_head, args.spans[i]);
    for (std::int32_t row = 0; row < args.spans[i].rows; ++row)
      for (std::int32_t g = 0; g < group; ++g)
        attend_row_grad(args, entries, i, row, args.kv_head * group + g);
  }
  each_key_gradient([](float& value) { value += 0.0F; });
}

void kv_store(const KvStoreArgs& args) {
  const KvView& kv = *args.kv;
  for (std::int32_t row = 0; row < args.span.rows; ++row) {
    const std::int32_t position = args.span.first_position + row;
    const std::int32_t block = args.span.block_table[position / kAttentionBlock];
    const std::int64_t slot = position % kAttentionBlock;
    for (std::int32_t head = 0; head < kv.kv_heads; ++head) {
      for (std::int64_t d = 0; d < kv.head_dim; ++d) {
        const std::int64_t source =
            (static_cast<std::int64_t>(args.span.first_row) + row) * args.ld + head * kv.head_dim + d;
        store(kv.dtype, args.k[source], kv.keys(block, head), d * kAttentionBlock + slot);
        store(kv.dtype, args.v[source], kv.values(block, head), slot * kv.head_dim + d);
      }
    }
  }
}

}  // namespace

void fill_attention(OpTable& table) {
  table.attention = attention;
  table.attention_grad = attention_grad;
  table.kv_store = kv_store;
}

}  // namespace rondo::kernels::reference
