// NaivePolicy: a decoder, its log-probabilities and a unit's loss as plain loops in double, for tests only.
#pragma once

#include <vector>

#include "model/weights.h"
#include "train/loss.h"
#include "train/unit.h"

namespace rondo::train {

/// Computes what UnitPass computes, from the published formulas, one sample at a time over its whole
/// sequence: no rows, blocks, chunks or kernels are shared with it. Parameters are widened copies of a
/// model's and may be changed, so that differences of loss() give derivatives. fp32 storage only (K and V are
/// not rounded).
class NaivePolicy final {
 public:
  struct Score {
    double logprob;
    double entropy;
  };

  explicit NaivePolicy(const model::Model& model);

  double& param(model::ParamIndex i, std::size_t at) { return params_[static_cast<std::size_t>(i)][at]; }
  /// Of every token of `response` after `prompt`.
  std::vector<Score> scores(const std::vector<Token>& prompt, const std::vector<Token>& response,
                            double temperature) const;
  /// Sum over the tokens of weight * (surrogate + coef * k3 - coef * entropy): what accumulate() derives.
  double loss(const TrainUnit& unit, const LossConfig& config, double temperature) const;

 private:
  using Row = std::vector<double>;
  Row project(model::ParamIndex weight, const Row& x) const;
  Row normalise(model::ParamIndex weight, const Row& x) const;
  void rotate(double* head, std::size_t position) const;
  void attend(const model::LayerParams& params, std::vector<Row>& x) const;
  void mlp(const model::LayerParams& params, Row& x) const;

  const model::Model* model_;
  std::vector<Row> params_;  // by ParamIndex, row-major
};

}  // namespace rondo::train
