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

// The key and value of a position: element d.
struct Entry {
  const KvView& kv;
  std::int32_t head;
  std::int32_t block;
  std::int64_t slot;

  Entry(const KvView& view, std::int32_t kv_head, const SequenceSpan& span, std::int32_t position)
      : kv(view),
        head(kv_head),
        block(span.block_table[position / kAttentionBlock]),
        slot(position % kAttentionBlock) {}

  float key(std::int64_t d) const { return load(kv.dtype, kv.keys(block, head), d * kAttentionBlock + slot); }
  float value(std::int64_t d) const { return load(kv.dtype, kv.values(block, head), slot * kv.head_dim + d); }
};

float score(const float* q, const Entry& entry, float scale) {
  float sum = 0.0F;
  for (std::int32_t d = 0; d < entry.kv.head_dim; ++d) sum = std::fma(q[d], entry.key(d), sum);
  return sum * scale;
}

// Softmax statistics and weighted values, of one block or of all blocks so far.
struct Partial {
  float max;
  float sum;
  std::vector<float> out;
};

Partial attend_block(const AttentionArgs& args, const SequenceSpan& span, const float* q, std::int32_t begin,
                     std::int32_t end) {
  const std::int32_t head_dim = args.kv->head_dim;
  std::vector<float> weights;
  float max = -std::numeric_limits<float>::infinity();
  for (std::int32_t p = begin; p < end; ++p) {
    weights.push_back(score(q, Entry(*args.kv, args.kv_head, span, p), args.scale));
    max = std::max(max, weights.back());
  }
  max += 0.0F;
  Partial result = {max, 0.0F, std::vector<float>(static_cast<std::size_t>(head_dim), 0.0F)};
  float lanes[kReduceLanes] = {};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = exp(weights[i] - max);
    lanes[i % kReduceLanes] += weights[i];
    const Entry entry(*args.kv, args.kv_head, span, begin + static_cast<std::int32_t>(i));
    for (std::int32_t d = 0; d < head_dim; ++d) {
      float& out = result.out[static_cast<std::size_t>(d)];
      out = std::fma(weights[i], entry.value(d), out);
    }
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

void attend_row(const AttentionArgs& args, const SequenceSpan& span, std::int32_t row, std::int32_t head) {
  const std::int32_t head_dim = args.kv->head_dim;
  const std::int64_t at = static_cast<std::int64_t>(span.first_row) + row;
  const float* q = args.q + at * args.ldq + static_cast<std::int64_t>(head) * head_dim;
  const std::int32_t end = span.first_position + row + 1;
  Partial total = attend_block(args, span, q, 0, std::min(end, kAttentionBlock));
  for (std::int32_t begin = kAttentionBlock; begin < end; begin += kAttentionBlock)
    append(total, attend_block(args, span, q, begin, std::min(end, begin + kAttentionBlock)));
  float* out = args.out + at * args.ldo + static_cast<std::int64_t>(head) * head_dim;
  for (std::int32_t d = 0; d < head_dim; ++d)
    out[d] = total.out[static_cast<std::size_t>(d)] / total.sum + 0.0F;
  if (args.stats == nullptr) return;
  args.stats[(at * args.heads + head) * 2] = total.max;
  args.stats[(at * args.heads + head) * 2 + 1] = total.sum;
}

void attention(const AttentionArgs& args) {
  const std::int32_t group = args.heads / args.kv->kv_heads;
  for (const SequenceSpan& span : args.spans)
    for (std::int32_t row = 0; row < span.rows; ++row)
      for (std::int32_t g = 0; g < group; ++g) attend_row(args, span, row, args.kv_head * group + g);
}

// Adds what one query row gives to its own gradient and to those of the positions it sees.
void attend_row_grad(const AttentionGradArgs& args, std::size_t index, std::int32_t row, std::int32_t head) {
  const SequenceSpan& span = args.spans[index];
  const std::int32_t head_dim = args.kv->head_dim;
  const std::int64_t at = static_cast<std::int64_t>(span.first_row) + row;
  const std::int64_t column = static_cast<std::int64_t>(head) * head_dim;
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
    const Entry entry(*args.kv, args.kv_head, span, p);
    const float weight = exp(score(q, entry, args.scale) - stats[0]) / stats[1];
    float dp = 0.0F;
    for (std::int32_t d = 0; d < head_dim; ++d) dp = std::fma(dout[d], entry.value(d), dp);
    const float ds = (weight * (dp - correlation)) * args.scale;
    const std::int64_t owner = args.position_rows[args.span_position_begin[index] + p];
    float* dk = args.dk + owner * args.lddkv + static_cast<std::int64_t>(args.kv_head) * head_dim;
    float* dv = args.dv + owner * args.lddkv + static_cast<std::int64_t>(args.kv_head) * head_dim;
    for (std::int32_t d = 0; d < head_dim; ++d) {
      dq[d] = std::fma(ds, entry.key(d), dq[d]);
      dk[d] = std::fma(ds, q[d], dk[d]);
      dv[d] = std::fma(weight, dout[d], dv[d]);
    }
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
  for (std::size_t i = 0; i < args.spans.size(); ++i)
    for (std::int32_t row = 0; row < args.spans[i].rows; ++row)
      for (std::int32_t g = 0; g < group; ++g) attend_row_grad(args, i, row, args.kv_head * group + g);
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
