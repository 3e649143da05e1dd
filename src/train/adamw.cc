#include "train/adamw.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numbers>
#include <string>

#include "base/check.h"

namespace rondo::train {
namespace {

// base^exponent by squaring: multiplications alone, so every machine gets the same bits.
double power(double base, std::int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2, base *= base)
    if (exponent % 2 == 1) result *= base;
  return result;
}

constexpr double kFixedPointUnit = 1.0 / static_cast<double>(std::int64_t{1} << kernels::kFixedPointBits);

}  // namespace

double tree_sum(std::vector<double> values) {
  if (values.empty()) return 0;
  while (values.size() > 1) {
    std::size_t out = 0;
    for (std::size_t i = 0; i < values.size(); i += 2)
      values[out++] = i + 1 < values.size() ? values[i] + values[i + 1] : values[i];
    values.resize(out);
  }
  return values.front();
}

AdamW::AdamW(const model::ParamLayout& layout, const kernels::Context& context)
    : layout_(&layout), context_(context) {
  for (const model::ParamInfo& info : layout.params()) {
    const auto count = static_cast<std::size_t>(info.count());
    masters_.emplace_back(count);
    first_.emplace_back(count);
    second_.emplace_back(count);
  }
}

std::span<float> AdamW::state(State which, model::ParamIndex i) {
  const auto at = static_cast<std::size_t>(i);
  switch (which) {
    case State::kMaster:
      return masters_[at].span();
    case State::kFirstMoment:
      return first_[at].span();
    case State::kSecondMoment:
      break;
  }
  return second_[at].span();
}

std::span<const float> AdamW::state(State which, model::ParamIndex i) const {
  return const_cast<AdamW*>(this)->state(which, i);
}

std::size_t AdamW::bytes() const {
  std::size_t total = 0;
  for (const auto* buffers : {&masters_, &first_, &second_})
    for (const auto& buffer : *buffers) total += buffer.bytes();
  return total;
}

// Fixed blocks per named tensor, a tree over its blocks, then a tree over the tensors in name order.
double AdamW::grad_norm(const GradientSum& sum, double scale) const {
  std::map<std::string, double> tensors;
  for (std::size_t i = 0; i < layout_->params().size(); ++i) {
    const model::ParamInfo& info = layout_->params()[i];
    for (const model::ParamSlice& slice : info.slices) {
      const std::int64_t count = slice.rows * info.cols;
      std::vector<double> blocks(
          static_cast<std::size_t>((count + kernels::kNormBlock - 1) / kernels::kNormBlock));
      kernels::squared_norms(context_,
                             sum.data(static_cast<model::ParamIndex>(i)) + slice.first_row * info.cols, count,
                             scale, blocks);
      tensors[slice.name] = tree_sum(std::move(blocks));
    }
  }
  std::vector<double> sums;
  sums.reserve(tensors.size());
  for (const auto& [name, value] : tensors) sums.push_back(value);
  return std::sqrt(tree_sum(std::move(sums)));
}

Result<UpdateReport> AdamW::update(const OptimizerConfig& config, double lr, double normalizer,
                                   const GradientSum& sum, model::Weights& weights) {
  RONDO_CHECK_GT(normalizer, 0.0);
  if (sum.poisoned())
    return fail(Code::kNumeric, "a unit of this step failed, so its gradient is incomplete; start it again");
  const double scale = kFixedPointUnit / normalizer;
  UpdateReport report;
  report.grad_norm = grad_norm(sum, scale);
  if (!std::isfinite(report.grad_norm))
    return fail(Code::kNumeric,
                "the gradient norm is {}; lower actor.optim.lr or look at this step's rewards",
                report.grad_norm);
  const bool clip = config.clip_grad > 0 && report.grad_norm > config.clip_grad;
  ++updates_;
  kernels::AdamWArgs args{};
  args.grad_scale = scale;
  args.clip = clip ? static_cast<float>(config.clip_grad / report.grad_norm) : 1.0f;
  args.lr = static_cast<float>(lr);
  args.beta1 = static_cast<float>(config.beta1);
  args.beta2 = static_cast<float>(config.beta2);
  args.eps = static_cast<float>(config.eps);
  args.weight_decay = static_cast<float>(config.weight_decay);
  // Of the rounded betas, which the moments decay by: 1 - fp32(0.999) is 1.3e-5 off 0.001.
  args.bias1 = static_cast<float>(1.0 - power(double{args.beta1}, updates_));
  args.bias2 = static_cast<float>(1.0 - power(double{args.beta2}, updates_));
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    args.master = masters_[i].data();
    args.m = first_[i].data();
    args.v = second_[i].data();
    args.grad = sum.data(static_cast<model::ParamIndex>(i));
    args.count = static_cast<std::int64_t>(masters_[i].size());
    kernels::adamw(context_, args);
  }
  if (auto stored = store_weights(weights); !stored)
    return tl::unexpected<Status>(std::move(stored).error().with_context(fmt::format(
        "the update with learning rate {} left the range of the weights; lower actor.optim.lr", lr)));
  return report;
}

Result<void> AdamW::store_weights(model::Weights& weights) const {
  std::mutex mutex;
  Result<void> first_error;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    const model::ParamInfo& info = layout_->params()[i];
    // Threads share out whole panels, so no two write to one.
    context_.pool->parallel_for(info.rows, kernels::kPanel, [&](std::int64_t begin, std::int64_t end) {
      auto stored = weights.store(static_cast<model::ParamIndex>(i), begin, end - begin,
                                  masters_[i].data() + begin * info.cols);
      const std::lock_guard lock(mutex);
      if (!stored && first_error) first_error = std::move(stored);
    });
  }
  return first_error;
}

double scheduled_lr(const LrScheduleConfig& config, double lr, std::int64_t step, std::int64_t total_steps) {
  if (step <= config.lr_warmup_steps)
    return lr * static_cast<double>(step) / static_cast<double>(config.lr_warmup_steps);
  const std::int64_t span = std::max<std::int64_t>(total_steps - config.lr_warmup_steps, 1);
  const double progress =
      std::min(1.0, static_cast<double>(step - config.lr_warmup_steps - 1) / static_cast<double>(span));
  switch (config.lr_scheduler_type) {
    case LrScheduler::kConstant:
      break;
    case LrScheduler::kLinear:
      return lr * (1.0 - (1.0 - config.min_lr_ratio) * progress);
    case LrScheduler::kCosine:
      return lr * (config.min_lr_ratio +
                   (1.0 - config.min_lr_ratio) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
  }
  return lr;
}

}  // namespace rondo::train
