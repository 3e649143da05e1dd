#include "train/unit_pass.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference.h"
#include "train/head.h"
#include "train/test_units.h"

namespace rondo::train {
namespace {

constexpr double kUnit = 0x1p-36;  // of the gradient sum
constexpr std::size_t kKeepAll = std::size_t{1} << 30;
const LossConfig kFullLoss{
    .clip_ratio_low = 0.2F, .clip_ratio_high = 0.28F, .kl_loss_coef = 0.05F, .entropy_coeff = 0.01F};

model::ModelSpec tied_spec() {
  model::ModelSpec spec = testing::tiny_spec();
  spec.tied_embeddings = true;
  return spec;
}

// A pass over a model, with all that it runs on.
struct Rig {
  Rig(const model::Model& m, const kernels::Context& context, std::size_t activation_bytes = kKeepAll)
      : model(&m), workspace(context), sum(m.layout(), context), pass(m, workspace, activation_bytes) {
    sum.reset();
  }

  Result<UnitReport> accumulate(const TrainUnit& unit, const LossConfig& loss, float temperature = 1.0F) {
    return pass.accumulate(unit, loss, temperature, sum);
  }
  std::vector<std::int64_t> bits() const { return gradient_bits(model->layout(), sum); }

  const model::Model* model;
  Workspace workspace;
  GradientSum sum;
  UnitPass pass;
};

bool all_zero(const std::vector<std::int64_t>& bits) {
  return std::all_of(bits.begin(), bits.end(), [](std::int64_t b) { return b == 0; });
}

double largest_gradient(const Rig& rig, model::ParamIndex i) {
  double largest = 0;
  for (std::int64_t at = 0; at < rig.model->layout()[i].count(); ++at)
    largest = std::max(largest, std::fabs(static_cast<double>(rig.sum.data(i)[at]) * kUnit));
  return largest;
}

// Central differences of the double loss at a few entries of every parameter. With step 1e-5 their own error
// is below 1e-9. The fp32 gradient passes about 30 operations per layer, each rounding by 2^-24 of terms that
// may be about twice the sum: 2^-24 * 3 layers * 30 operations * 2 = 1e-5 of the tensor's largest entry.
void expect_gradient_is_the_slope(const model::ModelSpec& spec, std::int64_t prompt,
                                  const std::vector<std::int64_t>& lengths, const LossConfig& loss,
                                  float temperature, int entries) {
  constexpr double kStep = 1e-5, kTolerance = 1e-5;
  const auto model = testing::random_model(spec, 7);
  const testing::Compute compute(2);
  NaivePolicy policy(*model);
  const TrainUnit unit = make_train_unit(policy, spec.vocab, prompt, lengths, temperature);
  Rig rig(*model, compute.context());
  const auto report = rig.accumulate(unit, loss, temperature);
  ASSERT_TRUE(report) << report.error().to_string();
  const double expected_loss = policy.loss(unit, loss, temperature);
  EXPECT_NEAR(report->weighted_loss, expected_loss, 1e-5 * static_cast<double>(report->tokens));
  for (std::size_t i = 0; i < model->layout().params().size(); ++i) {
    const auto param = static_cast<model::ParamIndex>(i);
    const std::int64_t count = model->layout()[param].count();
    const double largest = largest_gradient(rig, param);
    EXPECT_GT(largest, 0) << model->layout()[param].name;
    for (Token at : testing::random_tokens(static_cast<std::int32_t>(count), entries,
                                           static_cast<std::uint32_t>(i) + 100)) {
      double& value = policy.param(param, static_cast<std::size_t>(at));
      const double here = value;
      value = here + kStep;
      const double up = policy.loss(unit, loss, temperature);
      value = here - kStep;
      const double down = policy.loss(unit, loss, temperature);
      value = here;
      const double found = static_cast<double>(rig.sum.data(param)[at]) * kUnit;
      EXPECT_NEAR(found, (up - down) / (2 * kStep), kTolerance * largest + 1e-8)
          << model->layout()[param].name << " entry " << at;
    }
  }
}

TEST(UnitPassTest, GradientIsTheSlopeOfTheLoss) {
  expect_gradient_is_the_slope(testing::tiny_spec(), 6, {5, 1, 0, 3}, {}, 1.0F, 8);
}

TEST(UnitPassTest, GradientIsTheSlopeWithTiedEmbeddingsKlEntropyAndTemperature) {
  expect_gradient_is_the_slope(tied_spec(), 6, {5, 1, 0, 3}, kFullLoss, 0.7F, 8);
}

TEST(UnitPassTest, GradientIsTheSlopeAcrossAttentionBlocks) {
  expect_gradient_is_the_slope(testing::tiny_spec(), 62, {6, 3}, kFullLoss, 1.3F, 3);
}

TEST(UnitPassTest, GradientIsTheSlopeWithSeveralChunksOfHeadRows) {
  expect_gradient_is_the_slope(tied_spec(), 3, {kHeadRows / 3, kHeadRows / 3 - 5, kHeadRows / 3 + 10}, {},
                               1.0F, 2);
}

TEST(UnitPassTest, EntropyBonusAloneGivesItsSlope) {
  expect_gradient_is_the_slope(testing::tiny_spec(), 4, {4, 2}, {.entropy_coeff = 0.5F}, 1.0F, 4);
}

TEST(UnitPassTest, LogprobsEqualTheNaivePolicy) {
  const auto model = testing::random_model(testing::tiny_spec(), 3);
  const testing::Compute compute(2);
  const NaivePolicy policy(*model);
  Rig rig(*model, compute.context());
  for (std::int64_t prompt : {1, 63, 64, 65}) {
    const TrainUnit unit = make_train_unit(policy, 97, prompt, {70, 0, 1, 2}, 0.8F);
    const auto found = rig.pass.logprobs(unit, 0.8F);
    ASSERT_TRUE(found);
    for (std::size_t s = 0; s < unit.samples.size(); ++s) {
      const auto expected = policy.scores(unit.prompt, unit.samples[s].tokens, double{0.8F});
      ASSERT_EQ((*found)[s].size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR((*found)[s][i], expected[i].logprob, 1e-5 * (1 + std::fabs(expected[i].logprob)));
    }
  }
}

// A group with prompts and samples on both sides of a block, and more than one chunk of head rows.
struct Group {
  explicit Group(kernels::DType dtype) {
    model::ModelSpec spec = tied_spec();
    spec.dtype = dtype;
    model = testing::random_model(spec, 11);
    const NaivePolicy policy(*model);
    units.push_back(make_train_unit(policy, 97, 61, {kHeadRows, 1, 30}, 1.0F, 1));
    units.push_back(make_train_unit(policy, 97, 5, {9, 0, 3}, 1.0F, 20));
    units.push_back(make_train_unit(policy, 97, 64, {2}, 1.0F, 40));
  }
  std::vector<std::int64_t> gradient(const kernels::Context& context, std::size_t activation_bytes,
                                     const std::vector<std::size_t>& order = {0, 1, 2}) const {
    Rig rig(*model, context, activation_bytes);
    for (std::size_t u : order) EXPECT_TRUE(rig.accumulate(units[u], kFullLoss));
    return rig.bits();
  }

  std::unique_ptr<model::Model> model;
  std::vector<TrainUnit> units;
};

class UnitPassBitsTest : public ::testing::TestWithParam<kernels::DType> {};

TEST_P(UnitPassBitsTest, ActivationBudgetChangesNoBit) {
  const Group group(GetParam());
  const testing::Compute compute(2);
  const auto expected = group.gradient(compute.context(), kKeepAll);
  EXPECT_FALSE(all_zero(expected));
  // Nothing kept, about one layer of the longest unit, and what two layers take.
  for (std::size_t bytes : {std::size_t{0}, std::size_t{700'000}, std::size_t{1'400'000}})
    EXPECT_TRUE(group.gradient(compute.context(), bytes) == expected) << bytes;
}

TEST_P(UnitPassBitsTest, ThreadsChangeNoBit) {
  const Group group(GetParam());
  const testing::Compute one(1), two(2), three(3);
  const auto expected = group.gradient(one.context(), kKeepAll);
  EXPECT_TRUE(group.gradient(two.context(), kKeepAll) == expected);
  EXPECT_TRUE(group.gradient(three.context(), kKeepAll) == expected);
}

TEST_P(UnitPassBitsTest, OrderOfUnitsChangesNoBit) {
  const Group group(GetParam());
  const testing::Compute compute(1);
  const auto expected = group.gradient(compute.context(), kKeepAll);
  EXPECT_TRUE(group.gradient(compute.context(), kKeepAll, {2, 0, 1}) == expected);
  EXPECT_TRUE(group.gradient(compute.context(), kKeepAll, {1, 2, 0}) == expected);
}

TEST_P(UnitPassBitsTest, TargetsAndThePlainLoopsGiveTheSameBits) {
  const Group group(GetParam());
  ThreadPool pool(1);
  const auto expected = group.gradient({&kernels::reference::table(), &pool}, kKeepAll);
  for (const kernels::OpTable* target : kernels::available_targets())
    EXPECT_TRUE(group.gradient({target, &pool}, kKeepAll) == expected) << target->name;
}

INSTANTIATE_TEST_SUITE_P(DTypes, UnitPassBitsTest,
                         ::testing::Values(kernels::DType::kF32, kernels::DType::kF16, kernels::DType::kBF16),
                         [](const auto& p) { return std::string(kernels::dtype_name(p.param)); });

// One unit on a small model, with the model's own log-probabilities as the old ones.
struct OnPolicy {
  OnPolicy() : model(testing::random_model(testing::tiny_spec(), 5)), rig(*model, compute.context()) {
    unit = make_train_unit(NaivePolicy(*model), 97, 9, {6, 1, 4});
    const auto logprobs = rig.pass.logprobs(unit, 1.0F).value();
    for (std::size_t s = 0; s < unit.samples.size(); ++s)
      unit.samples[s].old_logprobs = unit.samples[s].ref_logprobs = logprobs[s];
  }
  testing::Compute compute;
  std::unique_ptr<model::Model> model;
  Rig rig;
  TrainUnit unit;
};

TEST(UnitPassTest, OnPolicyTheRatioIsOneAndTheLossMinusTheAdvantages) {
  OnPolicy on;
  const UnitReport report = on.rig.accumulate(on.unit, {}).value();
  double advantages = 0;
  for (const TrainSample& s : on.unit.samples)
    advantages += double{s.weight} * double{s.advantage} * static_cast<double>(s.tokens.size());
  EXPECT_EQ(report.tokens, 11);
  EXPECT_NEAR(report.weighted_loss, -advantages, 1e-12);
  EXPECT_EQ(report.max_ratio_error, 0.0F);
  EXPECT_EQ(report.max_logprob_error, 0.0F);
  EXPECT_EQ(report.ppo_kl, 0.0);
  EXPECT_EQ(report.clipped_low + report.clipped_high, 0);
}

TEST(UnitPassTest, AReferenceEqualToThePolicyAddsNothing) {
  OnPolicy on;
  ASSERT_TRUE(on.rig.accumulate(on.unit, {}));
  const auto without = on.rig.bits();
  on.rig.sum.reset();
  const UnitReport report = on.rig.accumulate(on.unit, {.kl_loss_coef = 0.3F}).value();
  EXPECT_EQ(report.weighted_kl, 0.0);
  EXPECT_TRUE(on.rig.bits() == without);
}

TEST(UnitPassTest, NoAdvantageGivesNoGradientAndSaysSoBeforehand) {
  OnPolicy on;
  EXPECT_FALSE(has_no_gradient(on.unit, {}));
  for (TrainSample& s : on.unit.samples) s.advantage = 0;
  EXPECT_TRUE(has_no_gradient(on.unit, {}));
  EXPECT_FALSE(has_no_gradient(on.unit, {.kl_loss_coef = 0.1F}));
  EXPECT_FALSE(has_no_gradient(on.unit, {.entropy_coeff = 0.1F}));
  ASSERT_TRUE(on.rig.accumulate(on.unit, {}));
  EXPECT_TRUE(all_zero(on.rig.bits()));
  on.unit.samples[1].advantage = 1;
  EXPECT_FALSE(has_no_gradient(on.unit, {}));
  on.unit.samples[1].weight = 0;
  EXPECT_TRUE(has_no_gradient(on.unit, {}));
}

TEST(UnitPassTest, ReportsCountClippedTokensOnEachSide) {
  OnPolicy on;
  for (TrainSample& s : on.unit.samples)
    for (float& old_logprob : s.old_logprobs) old_logprob += s.advantage > 0 ? -1.0F : 1.0F;
  const UnitReport report = on.rig.accumulate(on.unit, {}).value();
  EXPECT_EQ(report.clipped_high, 6 + 4);  // advantages 1.25 and 0.5
  EXPECT_EQ(report.clipped_low, 1);
  EXPECT_TRUE(all_zero(on.rig.bits()));
  UnitReport twice = report;
  twice.add(report);
  EXPECT_EQ(twice.tokens, 2 * report.tokens);
  EXPECT_EQ(twice.weighted_loss, 2 * report.weighted_loss);
  EXPECT_EQ(twice.max_ratio_error, report.max_ratio_error);
}

void expect_poisoned_until_reset(OnPolicy& on) {
  const auto refused = on.rig.accumulate(on.unit, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kNumeric) << refused.error().message();
  on.rig.sum.reset();
  EXPECT_FALSE(on.rig.sum.poisoned());
  EXPECT_TRUE(on.rig.accumulate(on.unit, {}));
}

TEST(UnitPassTest, ANanGradientPoisonsTheSumAndNamesATensor) {
  OnPolicy on;
  TrainUnit bad = on.unit;
  bad.samples[0].advantage = std::numeric_limits<float>::quiet_NaN();
  const auto failed = on.rig.accumulate(bad, {});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), Code::kNumeric);
  EXPECT_NE(failed.error().message().find("gradient of '"), std::string::npos) << failed.error().message();
  expect_poisoned_until_reset(on);
}

TEST(UnitPassTest, AnOverflowingGradientPoisonsTheSum) {
  OnPolicy on;
  TrainUnit bad = on.unit;
  for (TrainSample& s : bad.samples) s.advantage = 1e20F;
  const auto failed = on.rig.accumulate(bad, {});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), Code::kNumeric);
  expect_poisoned_until_reset(on);
}

TEST(UnitPassTest, LogitsThatAreNotFinitePoisonTheSum) {
  const model::ModelSpec spec = testing::tiny_spec();
  const auto model = testing::random_model(spec, 5);
  const testing::Compute compute;
  Rig rig(*model, compute.context());
  const TrainUnit unit = make_train_unit(NaivePolicy(*model), spec.vocab, 4, {3});
  const std::vector<float> huge(static_cast<std::size_t>(spec.hidden), 3e38F);
  ASSERT_TRUE(model->weights().store(model->layout().head(), 0, 1, huge.data()));
  const auto failed = rig.accumulate(unit, {});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), Code::kNumeric);
  EXPECT_NE(failed.error().message().find("logits"), std::string::npos) << failed.error().message();
  EXPECT_FALSE(rig.pass.logprobs(unit, 1.0F));
  EXPECT_TRUE(rig.sum.poisoned());
}

TEST(UnitPassTest, BadUnitsAreRefusedWithTheReason) {
  OnPolicy on;
  const auto expect_refused = [&](const TrainUnit& unit, const char* reason) {
    for (const Status& status :
         {on.rig.accumulate(unit, {}).error(), on.rig.pass.logprobs(unit, 1.0F).error()}) {
      EXPECT_EQ(status.code(), Code::kInvalidArgument);
      EXPECT_NE(status.message().find(reason), std::string::npos) << status.message();
    }
  };
  TrainUnit bad = on.unit;
  bad.prompt[2] = 97;
  expect_refused(bad, "vocabulary of 97");
  bad.prompt[2] = -1;
  expect_refused(bad, "vocabulary of 97");
  bad = on.unit;
  bad.samples[2].tokens[3] = 97;
  expect_refused(bad, "vocabulary of 97");
  bad = on.unit;
  bad.prompt.clear();
  expect_refused(bad, "empty");
  bad = on.unit;
  bad.prompt.assign(507, 1);  // + 6 = 513
  expect_refused(bad, "513 tokens exceeds the model's 512 positions");
}

TEST(UnitPassDeathTest, ALogprobMissingForATokenIsABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  OnPolicy on;
  TrainUnit unit = on.unit;
  unit.samples[2].old_logprobs.pop_back();
  EXPECT_DEATH(static_cast<void>(on.rig.accumulate(unit, {})), "old_logprobs.size");
  LossConfig with_kl;
  with_kl.kl_loss_coef = 0.1F;
  unit = on.unit;
  for (TrainSample& sample : unit.samples) sample.ref_logprobs.clear();
  EXPECT_DEATH(static_cast<void>(on.rig.accumulate(unit, with_kl)), "ref_logprobs.size");
}

TEST(UnitPassTest, EmptyResponsesAreAUnitWithoutTargets) {
  OnPolicy on;
  for (TrainSample& s : on.unit.samples) {
    s.tokens.clear();
    s.old_logprobs.clear();
  }
  const auto report = on.rig.accumulate(on.unit, {});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->tokens, 0);
  EXPECT_TRUE(all_zero(on.rig.bits()));
}

}  // namespace
}  // namespace rondo::train
