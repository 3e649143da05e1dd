// GradientSum: the gradient of a step as 64-bit fixed-point integers, where addition is associative.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/id.h"
#include "base/status.h"
#include "kernels/ops.h"
#include "model/param_layout.h"

namespace rondo::train {

/// Holds, per parameter, the sum of unnormalised unit gradients in units of 2^-36 [rows, cols]. The order of
/// additions changes no bit. One owner thread; the additions run on its pool.
///
/// A NaN or an overflow poisons the sum: add() returns kNumeric and every later add() too, until reset(). So
/// does poison(), for a caller that could not add all of a gradient.
class GradientSum final {
 public:
  GradientSum(const model::ParamLayout& layout, const kernels::Context& context);

  /// Zeroes everything and lifts a poisoning.
  void reset();
  /// Adds fp32 values [rows, cols] to rows [first_row, +rows) of parameter i.
  Result<void> add(model::ParamIndex i, std::int64_t first_row, std::int64_t rows, const float* values);
  /// Adds the weight gradient dy^T x of parameter i: dy is [count, rows], x [count, cols].
  Result<void> add_product(model::ParamIndex i, const float* dy, const float* x, std::int64_t count);
  /// Adds row m of `values` [count, cols] to row rows[m] of parameter i (rows may repeat).
  Result<void> add_rows(model::ParamIndex i, std::span<const Token> rows, const float* values);

  void poison() { poisoned_ = true; }
  bool poisoned() const { return poisoned_; }

  const std::int64_t* data(model::ParamIndex i) const { return sums_[static_cast<std::size_t>(i)].data(); }
  std::size_t bytes() const;

 private:
  Result<void> check(bool ok, model::ParamIndex i);

  const model::ParamLayout* layout_;
  kernels::Context context_;
  std::vector<AlignedBuffer<std::int64_t>> sums_;
  bool poisoned_ = false;
};

}  // namespace rondo::train
