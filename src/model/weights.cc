#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "kernels/op_table.h"

namespace rondo::model {
namespace {

// The tensor of the model folder that holds `row` of the parameter.
const std::string& tensor_at(const ParamInfo& info, std::int64_t row) {
  for (const ParamSlice& slice : info.slices)
    if (row < slice.first_row + slice.rows) return slice.name;
  return info.name;
}

// Whole cache lines.
std::size_t matrix_bytes(const ParamInfo& info, kernels::DType dtype) {
  return (kernels::PackedMatrix::storage_bytes(dtype, info.rows, info.cols) + 63) / 64 * 64;
}

}  // namespace

Weights::Weights(const ParamLayout& layout, kernels::DType dtype) : layout_(&layout), dtype_(dtype) {
  matrices_.resize(layout.params().size());
  vectors_.resize(layout.params().size());
  std::size_t bytes = 0;
  for (const ParamInfo& info : layout.params())
    if (!info.is_vector) bytes += matrix_bytes(info, dtype);
  storage_ = AlignedBuffer<std::byte>(bytes);
  std::byte* next = storage_.data();
  for (std::size_t i = 0; i < layout.params().size(); ++i) {
    const ParamInfo& info = layout.params()[i];
    if (info.is_vector) {
      vectors_[i] = AlignedBuffer<float>(static_cast<std::size_t>(info.cols));
    } else {
      matrices_[i] = kernels::PackedMatrix(dtype, info.rows, info.cols, next);
      next += matrix_bytes(info, dtype);
    }
  }
}

Result<void> Weights::store(ParamIndex i, std::int64_t first_row, std::int64_t rows, const float* values) {
  const ParamInfo& info = (*layout_)[i];
  RONDO_CHECK(first_row >= 0 && first_row + rows <= info.rows);
  bool finite = true;
  if (info.is_vector) {
    float* out = vectors_[static_cast<std::size_t>(i)].data();
    for (std::int64_t c = 0; c < info.cols; ++c) {
      out[c] = kernels::round_to(dtype_, values[c]);
      finite = finite && std::isfinite(out[c]);
    }
  } else {
    // Every target packs the same bits, so the best one may.
    finite = kernels::available_targets().front()->pack_rows(
        {.w = &matrices_[static_cast<std::size_t>(i)], .first = first_row, .count = rows, .source = values});
  }
  if (finite) return {};
  return fail(
      Code::kNumeric,
      "tensor '{}' holds a value that is not finite in {}; use model.dtype = \"bf16\" or \"fp32\", or repair "
      "the model",
      tensor_at(info, first_row), kernels::dtype_name(dtype_));
}

void Weights::load(ParamIndex i, std::int64_t first_row, std::int64_t rows, float* out) const {
  const ParamInfo& info = (*layout_)[i];
  if (info.is_vector) {
    std::copy_n(vector(i), info.cols, out);
  } else {
    matrix(i).unpack_rows(first_row, rows, out);
  }
}

std::size_t Weights::bytes() const {
  std::size_t sum = 0;
  for (const auto& m : matrices_) sum += m.bytes();
  for (const auto& v : vectors_) sum += v.bytes();
  return sum;
}

Result<std::unique_ptr<Model>> Model::create(const ModelSpec& spec) {
  RONDO_ASSIGN_CTX(
      kernels::RopeTables rope,
      kernels::make_rope_tables(spec.max_positions, spec.head_dim, static_cast<float>(spec.rope_theta)),
      "rotary embedding");
  return std::unique_ptr<Model>(new Model(spec, std::move(rope)));
}

Model::Model(const ModelSpec& spec, kernels::RopeTables rope)
    : spec_(spec),
      layout_(spec),
      orders_(sum_orders(spec)),
      rope_(std::move(rope)),
      weights_(layout_, spec.dtype) {}

}  // namespace rondo::model
