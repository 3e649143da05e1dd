#include "train/gradient_sum.h"

#include <atomic>
#include <cstring>

namespace rondo::train {
namespace {

constexpr std::int64_t kGrain = 4096;

}  // namespace

GradientSum::GradientSum(const model::ParamLayout& layout, const kernels::Context& context)
    : layout_(&layout), context_(context) {
  for (const model::ParamInfo& info : layout.params())
    sums_.emplace_back(static_cast<std::size_t>(info.count()));
}

void GradientSum::reset() {
  poisoned_ = false;
  for (auto& sum : sums_) {
    context_.pool->parallel_for(
        static_cast<std::int64_t>(sum.size()), kGrain, [&](std::int64_t begin, std::int64_t end) {
          std::memset(sum.data() + begin, 0, static_cast<std::size_t>(end - begin) * 8);
        });
  }
}

Result<void> GradientSum::check(bool ok, model::ParamIndex i) {
  poisoned_ = poisoned_ || !ok;
  if (!poisoned_) return {};
  return fail(Code::kNumeric,
              "the gradient of '{}' is not a number or left the range of the sum; lower the learning rate, "
              "or look at "
              "the rewards and the model of this step",
              (*layout_)[i].name);
}

Result<void> GradientSum::add(model::ParamIndex i, std::int64_t first_row, std::int64_t rows,
                              const float* values) {
  const std::int64_t cols = (*layout_)[i].cols;
  std::int64_t* sum = sums_[static_cast<std::size_t>(i)].data() + first_row * cols;
  std::atomic<bool> ok{true};
  context_.pool->parallel_for(rows * cols, kGrain, [&](std::int64_t begin, std::int64_t end) {
    if (!context_.table->fixed_point_add(sum + begin, values + begin, end - begin)) ok = false;
  });
  return check(ok, i);
}

Result<void> GradientSum::add_product(model::ParamIndex i, const float* dy, const float* x,
                                      std::int64_t count) {
  const model::ParamInfo& info = (*layout_)[i];
  const bool ok = kernels::weight_grad_sum(context_, {.dy = dy,
                                                      .lddy = info.rows,
                                                      .x = x,
                                                      .ldx = info.cols,
                                                      .sum = sums_[static_cast<std::size_t>(i)].data(),
                                                      .ldsum = info.cols,
                                                      .rows = count,
                                                      .cols = info.cols,
                                                      .r_begin = 0,
                                                      .r_end = info.rows});
  return check(ok, i);
}

Result<void> GradientSum::add_rows(model::ParamIndex i, std::span<const Token> rows, const float* values) {
  const std::int64_t cols = (*layout_)[i].cols;
  std::int64_t* sum = sums_[static_cast<std::size_t>(i)].data();
  std::atomic<bool> ok{true};
  // Threads share out the columns, so that repeated rows meet on one thread.
  context_.pool->parallel_for(cols, kernels::kPanel, [&](std::int64_t begin, std::int64_t end) {
    for (std::size_t m = 0; m < rows.size(); ++m) {
      const float* row = values + static_cast<std::int64_t>(m) * cols;
      if (!context_.table->fixed_point_add(sum + rows[m] * cols + begin, row + begin, end - begin))
        ok = false;
    }
  });
  return check(ok, i);
}

std::size_t GradientSum::bytes() const {
  std::size_t total = 0;
  for (const auto& sum : sums_) total += sum.bytes();
  return total;
}

}  // namespace rondo::train
