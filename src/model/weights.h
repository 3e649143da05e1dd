// Weights: a model's parameters as the kernels read them, and Model, which ties them to their description.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "kernels/rope_tables.h"
#include "kernels/types.h"
#include "model/param_layout.h"
#include "model/spec.h"

namespace rondo::model {

/// The one copy of the weights that engine and trainer compute with: matrices packed in the storage type,
/// vectors rounded to it and held as fp32.
///
/// Does not keep masters (train::AdamW does) and does not know files. Readers may be on any thread while
/// nobody stores; `store` belongs to the one owner, between steps.
class Weights final {
 public:
  Weights(const ParamLayout& layout, kernels::DType dtype);

  const kernels::PackedMatrix& matrix(ParamIndex i) const { return matrices_[static_cast<std::size_t>(i)]; }
  const float* vector(ParamIndex i) const { return vectors_[static_cast<std::size_t>(i)].data(); }

  /// Rounds fp32 values [rows, cols] into rows [first_row, +rows) of parameter i. kNumeric, naming the
  /// tensor, if a value is not finite or leaves the range of the storage type; the rows are then partly
  /// written.
  Result<void> store(ParamIndex i, std::int64_t first_row, std::int64_t rows, const float* values);
  /// The stored values as fp32 [rows, cols].
  void load(ParamIndex i, std::int64_t first_row, std::int64_t rows, float* out) const;
  /// Bytes held.
  std::size_t bytes() const;

 private:
  const ParamLayout* layout_;
  kernels::DType dtype_;
  AlignedBuffer<std::byte> storage_;             // of all matrices: one piece, so that it lies on huge pages
  std::vector<kernels::PackedMatrix> matrices_;  // by ParamIndex; empty for vectors
  std::vector<AlignedBuffer<float>> vectors_;    // by ParamIndex; empty for matrices
};

/// A decoder ready to run: dimensions, parameter table, orders of its sums, weights, rotary tables.
/// Not movable: the parts refer to each other.
class Model final {
 public:
  /// All weights zero. kInvalidArgument for rotary dimensions that the tables cannot hold.
  static Result<std::unique_ptr<Model>> create(const ModelSpec& spec);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelSpec& spec() const { return spec_; }
  const ParamLayout& layout() const { return layout_; }
  const SumOrders& orders() const { return orders_; }
  const kernels::RopeTables& rope() const { return rope_; }
  const Weights& weights() const { return weights_; }
  Weights& weights() { return weights_; }

 private:
  Model(const ModelSpec& spec, kernels::RopeTables rope);
  ModelSpec spec_;
  ParamLayout layout_;
  SumOrders orders_;
  kernels::RopeTables rope_;
  Weights weights_;
};

}  // namespace rondo::model
