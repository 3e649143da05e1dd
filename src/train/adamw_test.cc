#include "train/adamw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>

#include "train/test_units.h"

namespace rondo::train {
namespace {

using State = AdamW::State;
constexpr double kUlp = 0x1p-24;

// The update rule over all parameters laid end to end, in double.
struct PlainAdamW {
  std::vector<double> master, m, v;
  std::int64_t t = 0;

  double update(const OptimizerConfig& c, double lr, std::vector<double> gradient) {
    double squares = 0;
    for (double g : gradient) squares += g * g;
    const double norm = std::sqrt(squares);
    const double clip = c.clip_grad > 0 && norm > c.clip_grad ? c.clip_grad / norm : 1.0;
    ++t;
    // The rule's constants are fp32.
    const double beta1 = static_cast<float>(c.beta1), beta2 = static_cast<float>(c.beta2);
    const double bias1 = 1 - std::pow(beta1, t), bias2 = 1 - std::pow(beta2, t);
    for (std::size_t i = 0; i < master.size(); ++i) {
      const double g = gradient[i] * clip;
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      const double step = m[i] / bias1 / (std::sqrt(v[i] / bias2) + c.eps);
      master[i] -= lr * (step + c.weight_decay * master[i]);
    }
    return norm;
  }
};

// A model with an optimiser whose masters are the model's weights.
struct Rig {
  explicit Rig(int threads = 1, kernels::DType dtype = kernels::DType::kF32)
      : compute(threads),
        model(testing::random_model(testing::tiny_spec(dtype), 9)),
        sum(model->layout(), compute.context()),
        optimizer(model->layout(), compute.context()) {
    for (model::ParamIndex i = 0; i < num_params(); ++i)
      model->weights().load(i, 0, model->layout()[i].rows, optimizer.state(State::kMaster, i).data());
    sum.reset();
  }

  model::ParamIndex num_params() const {
    return static_cast<model::ParamIndex>(model->layout().params().size());
  }
  // A gradient of many magnitudes; returns it as the sum holds it.
  std::vector<double> add_gradient(std::uint32_t seed, float scale) {
    model::ModelSpec spec = model->spec();
    spec.dtype = kernels::DType::kF32;
    const auto source = testing::random_model(spec, seed);
    for (model::ParamIndex i = 0; i < num_params(); ++i) {
      std::vector<float> values(static_cast<std::size_t>(model->layout()[i].count()));
      source->weights().load(i, 0, model->layout()[i].rows, values.data());
      for (std::size_t k = 0; k < values.size(); ++k) values[k] *= scale * (k % 3 == 0 ? 1e-3F : 1.0F);
      EXPECT_TRUE(sum.add(i, 0, model->layout()[i].rows, values.data()));
    }
    std::vector<double> out;
    for (std::int64_t bits : gradient_bits(model->layout(), sum))
      out.push_back(static_cast<double>(bits) * 0x1p-36);
    return out;
  }
  std::vector<float> all(State which) const {
    std::vector<float> out;
    for (model::ParamIndex i = 0; i < num_params(); ++i) {
      const auto part = optimizer.state(which, i);
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }
  std::vector<float> weights() const {
    std::vector<float> out;
    for (model::ParamIndex i = 0; i < num_params(); ++i) {
      std::vector<float> part(static_cast<std::size_t>(model->layout()[i].count()));
      model->weights().load(i, 0, model->layout()[i].rows, part.data());
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }

  testing::Compute compute;
  std::unique_ptr<model::Model> model;
  GradientSum sum;
  AdamW optimizer;
};

// Several updates against the plain loop. Each update rounds a handful of times: the moments by 2^-24 of
// themselves per step, the step by about ten roundings, the master by one.
void expect_plain_updates(const OptimizerConfig& config, float scale) {
  Rig rig(2);
  PlainAdamW plain;
  const auto start = rig.all(State::kMaster);
  plain.master.assign(start.begin(), start.end());
  plain.m.assign(start.size(), 0.0);
  plain.v.assign(start.size(), 0.0);
  constexpr double kLr = 1e-2, kNormalizer = 3;
  for (std::uint32_t t = 1; t <= 4; ++t) {
    rig.sum.reset();
    std::vector<double> gradient = rig.add_gradient(t, scale);
    for (double& g : gradient) g /= kNormalizer;
    const double norm = plain.update(config, kLr, gradient);
    const auto report = rig.optimizer.update(config, kLr, kNormalizer, rig.sum, rig.model->weights());
    ASSERT_TRUE(report) << report.error().to_string();
    EXPECT_NEAR(report->grad_norm, norm, 4 * kUlp * norm);  // each element is rounded to fp32 first
    EXPECT_EQ(rig.optimizer.updates(), t);
    const auto master = rig.all(State::kMaster), m = rig.all(State::kFirstMoment),
               v = rig.all(State::kSecondMoment);
    for (std::size_t i = 0; i < master.size(); ++i) {
      const double g = std::max(std::fabs(gradient[i]), std::sqrt(plain.v[i]));
      ASSERT_NEAR(m[i], plain.m[i], 8 * kUlp * t * g);
      ASSERT_NEAR(v[i], plain.v[i], 8 * kUlp * t * plain.v[i] + 1e-37);
      ASSERT_NEAR(master[i], plain.master[i], t * kUlp * (2 * std::fabs(plain.master[i]) + 64 * kLr)) << i;
    }
    EXPECT_EQ(rig.weights(), master);
  }
}

TEST(AdamWTest, UpdatesEqualThePlainLoop) {
  expect_plain_updates({.weight_decay = 0.1, .clip_grad = 0}, 0.1F);
}

TEST(AdamWTest, UpdatesEqualThePlainLoopWhenClipped) {
  expect_plain_updates({.beta1 = 0.8, .beta2 = 0.95, .clip_grad = 0.5}, 10.0F);
}

TEST(AdamWTest, ANormBelowTheLimitIsNotClipped) {
  Rig clipped, free;
  clipped.add_gradient(1, 0.01F);
  free.add_gradient(1, 0.01F);
  const auto a = clipped.optimizer.update({.clip_grad = 100}, 1e-3, 1, clipped.sum, clipped.model->weights());
  const auto b = free.optimizer.update({.clip_grad = 0}, 1e-3, 1, free.sum, free.model->weights());
  ASSERT_TRUE(a && b);
  EXPECT_LT(a->grad_norm, 100);
  EXPECT_EQ(clipped.all(State::kMaster), free.all(State::kMaster));
}

TEST(AdamWTest, TheFirstStepIsTheSignOfTheGradient) {
  // Bias correction: m / bias1 = g and sqrt(v / bias2) = |g| after one update.
  Rig rig;
  const auto before = rig.all(State::kMaster);
  const std::vector<double> gradient = rig.add_gradient(1, 1.0F);
  ASSERT_TRUE(rig.optimizer.update({.eps = 1e-20, .weight_decay = 0, .clip_grad = 0}, 0.5, 1, rig.sum,
                                   rig.model->weights()));
  const auto after = rig.all(State::kMaster);
  for (std::size_t i = 0; i < before.size(); ++i)
    ASSERT_NEAR(after[i] - before[i], gradient[i] == 0 ? 0.0 : std::copysign(0.5, -gradient[i]), 8 * kUlp)
        << i;
}

TEST(AdamWTest, ThreadsChangeNoBit) {
  std::vector<float> masters, seconds;
  double norm = 0;
  for (int threads : {1, 2, 3}) {
    Rig rig(threads, kernels::DType::kF16);
    UpdateReport report;
    for (std::uint32_t t = 1; t <= 2; ++t) {
      rig.sum.reset();
      rig.add_gradient(t, 3.0F);
      report = rig.optimizer.update({}, 1e-3, 7, rig.sum, rig.model->weights()).value();
    }
    if (threads == 1) {
      masters = rig.all(State::kMaster);
      seconds = rig.all(State::kSecondMoment);
      norm = report.grad_norm;
    }
    EXPECT_EQ(rig.all(State::kMaster), masters) << threads;
    EXPECT_EQ(rig.all(State::kSecondMoment), seconds) << threads;
    EXPECT_EQ(report.grad_norm, norm) << threads;
  }
}

TEST(AdamWTest, WeightsAreTheMastersRounded) {
  Rig rig(2, kernels::DType::kF16);
  rig.add_gradient(1, 1.0F);
  ASSERT_TRUE(rig.optimizer.update({}, 1e-3, 1, rig.sum, rig.model->weights()));
  const auto master = rig.all(State::kMaster), weights = rig.weights();
  for (std::size_t i = 0; i < master.size(); ++i)
    ASSERT_EQ(weights[i], kernels::round_to(kernels::DType::kF16, master[i])) << i;
}

TEST(AdamWTest, APoisonedSumIsRefusedAndChangesNothing) {
  Rig rig;
  const auto master = rig.all(State::kMaster), weights = rig.weights();
  rig.add_gradient(1, 1.0F);
  rig.sum.poison();
  const auto refused = rig.optimizer.update({}, 1e-3, 1, rig.sum, rig.model->weights());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kNumeric);
  EXPECT_EQ(rig.optimizer.updates(), 0);
  EXPECT_EQ(rig.all(State::kMaster), master);
  EXPECT_EQ(rig.all(State::kFirstMoment), std::vector<float>(master.size(), 0.0F));
  EXPECT_EQ(rig.weights(), weights);
}

TEST(AdamWTest, AWeightBeyondItsTypeIsAnErrorThatNamesIt) {
  Rig rig(1, kernels::DType::kF16);
  rig.optimizer.state(State::kMaster, rig.model->layout().layer(1).down)[5] = 70000.0F;
  const auto stored = rig.optimizer.store_weights(rig.model->weights());
  ASSERT_FALSE(stored);
  EXPECT_EQ(stored.error().code(), Code::kNumeric);
  EXPECT_NE(stored.error().message().find("layers.1"), std::string::npos) << stored.error().message();
}

TEST(AdamWTest, AnUpdateBeyondTheRangeBlamesTheLearningRate) {
  Rig rig(1, kernels::DType::kF16);
  rig.add_gradient(1, 1.0F);
  const auto updated = rig.optimizer.update({}, 1e30, 1, rig.sum, rig.model->weights());
  ASSERT_FALSE(updated);
  EXPECT_EQ(updated.error().code(), Code::kNumeric);
  EXPECT_NE(updated.error().message().find("lower actor.optim.lr"), std::string::npos)
      << updated.error().message();
}

TEST(AdamWTest, TreeSumAddsNeighbours) {
  EXPECT_EQ(tree_sum({}), 0.0);
  EXPECT_EQ(tree_sum({3.0}), 3.0);
  // ((a + b) + (c + d)) + e: in another order the small ones would be lost.
  EXPECT_EQ(tree_sum({1.0, -1.0, 0x1p-60, 0x1p-60, 0x1p-59}), 0x1p-58);
  EXPECT_EQ(tree_sum({1.0, 0x1p-53, -1.0, 0.0}), 0.0);
}

TEST(AdamWTest, WarmUpIsLinear) {
  const LrScheduleConfig config{.lr_warmup_steps = 4};
  EXPECT_DOUBLE_EQ(scheduled_lr(config, 2.0, 1, 100), 0.5);
  EXPECT_DOUBLE_EQ(scheduled_lr(config, 2.0, 4, 100), 2.0);
  EXPECT_DOUBLE_EQ(scheduled_lr(config, 2.0, 5, 100), 2.0);
  EXPECT_DOUBLE_EQ(scheduled_lr(config, 2.0, 100, 100), 2.0);
}

TEST(AdamWTest, LinearAndCosineFallToTheirShare) {
  LrScheduleConfig config{
      .lr_scheduler_type = LrScheduler::kLinear, .lr_warmup_steps = 2, .min_lr_ratio = 0.1};
  // 8 steps after warm-up: progress 0, 1/8, …, 7/8.
  EXPECT_DOUBLE_EQ(scheduled_lr(config, 1.0, 3, 10), 1.0);
  EXPECT_DOUBLE_EQ(scheduled_lr(config, 1.0, 7, 10), 1.0 - 0.9 * 4 / 8);
  config.lr_scheduler_type = LrScheduler::kCosine;
  EXPECT_DOUBLE_EQ(scheduled_lr(config, 1.0, 3, 10), 1.0);
  EXPECT_DOUBLE_EQ(scheduled_lr(config, 1.0, 7, 10), 0.1 + 0.9 * 0.5);
  EXPECT_DOUBLE_EQ(scheduled_lr(config, 1.0, 5, 10), 0.1 + 0.9 * 0.5 * (1 + std::cos(std::numbers::pi / 4)));
  for (LrScheduler type : {LrScheduler::kLinear, LrScheduler::kCosine}) {
    config.lr_scheduler_type = type;
    EXPECT_GT(scheduled_lr(config, 1.0, 10, 10), 0.1) << "the last step is not wasted";
    EXPECT_NEAR(scheduled_lr(config, 1.0, 11, 10), 0.1, 1e-12);
    EXPECT_NEAR(scheduled_lr(config, 1.0, 15, 10), 0.1, 1e-12);
  }
}

}  // namespace
}  // namespace rondo::train
