#include "train/head.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/sampling.h"

namespace rondo::train {

// Head rows [first, first + count) of a unit, their targets, and the buffers of the chunk.
struct Head::Chunk {
  Chunk(const UnitRows& unit, std::int64_t first_row, std::int64_t end_row, const model::ModelSpec& spec,
        BufferPool& pool)
      : rows(&unit),
        first(first_row),
        count(end_row - first_row),
        hidden(pool.acquire(count * spec.hidden)),
        logits(pool.acquire(count * spec.vocab)),
        stats(static_cast<std::size_t>(count)) {
    const auto& targets = unit.targets();
    const auto by_row = [](const Target& t, std::int64_t row) { return t.head_row < row; };
    target_begin = static_cast<std::size_t>(std::lower_bound(targets.begin(), targets.end(), first, by_row) -
                                            targets.begin());
    target_end = static_cast<std::size_t>(
        std::lower_bound(targets.begin(), targets.end(), first + count, by_row) - targets.begin());
  }

  const UnitRows* rows;
  std::int64_t first;
  std::int64_t count;
  BufferPool::Handle hidden;  // [count, hidden]
  BufferPool::Handle logits;  // [count, vocab]; their gradients later
  std::vector<kernels::SoftmaxStats> stats;
  std::size_t target_begin, target_end;

  const Target& target(std::size_t i) const { return rows->targets()[i]; }
  std::int32_t unit_row(std::int64_t i) const {
    return rows->head_rows()[static_cast<std::size_t>(first + i)];
  }
};

Result<void> Head::forward(Chunk& chunk, const float* hidden, float temperature,
                           std::span<TargetScore> scores) {
  const model::ModelSpec& spec = model_->spec();
  for (std::int64_t i = 0; i < chunk.count; ++i)
    std::memcpy(chunk.hidden.data() + i * spec.hidden,
                hidden + static_cast<std::int64_t>(chunk.unit_row(i)) * spec.hidden,
                static_cast<std::size_t>(spec.hidden) * sizeof(float));
  kernels::matmul(workspace_->context, model_->weights().matrix(model_->layout().head()), chunk.hidden.data(),
                  spec.hidden, chunk.count, chunk.logits.data(), spec.vocab);
  std::vector<kernels::SoftmaxRow> rows;
  for (std::int64_t i = 0; i < chunk.count; ++i)
    rows.push_back({chunk.logits.data() + i * spec.vocab, temperature});
  kernels::softmax_stats(workspace_->context, rows, spec.vocab, spec.chains(), chunk.stats);
  const kernels::OpTable& ops = *workspace_->context.table;
  for (std::size_t t = chunk.target_begin; t < chunk.target_end; ++t) {
    const std::int64_t row = chunk.target(t).head_row - chunk.first;
    const kernels::SoftmaxStats& stats = chunk.stats[static_cast<std::size_t>(row)];
    const float x = chunk.logits.data()[row * spec.vocab + chunk.target(t).token] / temperature;
    scores[t] = {kernels::logprob_of(ops, stats, x), kernels::entropy_of(ops, stats)};
    if (!std::isfinite(scores[t].logprob))
      return fail(Code::kNumeric,
                  "the logits of a training row are not finite; the model has diverged or is damaged");
  }
  return {};
}

void Head::logit_grads(Chunk& chunk, float temperature, std::span<const TargetScore> scores,
                       const Loss& loss) {
  const std::int64_t vocab = model_->spec().vocab;
  std::vector<TargetGrad> grads;
  std::vector<TargetGrad> row_sums(static_cast<std::size_t>(chunk.count), TargetGrad{0, 0});
  for (std::size_t t = chunk.target_begin; t < chunk.target_end; ++t) {
    grads.push_back(loss(t, scores[t]));
    TargetGrad& sum = row_sums[static_cast<std::size_t>(chunk.target(t).head_row - chunk.first)];
    sum.dlogprob += grads.back().dlogprob;
    sum.dentropy += grads.back().dentropy;
  }
  // A row may predict several tokens (the prompt's last row does): the shared part once, then each target's
  // own.
  std::vector<kernels::SoftmaxGradArgs> args;
  for (std::int64_t i = 0; i < chunk.count; ++i) {
    float* row = chunk.logits.data() + i * vocab;
    const auto at = static_cast<std::size_t>(i);
    args.push_back({.logits = row,
                    .vocab = vocab,
                    .temperature = temperature,
                    .stats = chunk.stats[at],
                    .target = -1,
                    .dlogprob = row_sums[at].dlogprob,
                    .dentropy = row_sums[at].dentropy,
                    .dlogits = row});
  }
  kernels::softmax_grad(workspace_->context, args);
  for (std::size_t t = chunk.target_begin; t < chunk.target_end; ++t) {
    const std::int64_t row = chunk.target(t).head_row - chunk.first;
    chunk.logits.data()[row * vocab + chunk.target(t).token] +=
        grads[t - chunk.target_begin].dlogprob / temperature;
  }
}

const kernels::PackedMatrix& Head::transposed() {
  const kernels::PackedMatrix& w = model_->weights().matrix(model_->layout().head());
  if (!transposed_valid_) {
    if (transposed_.rows() != w.cols()) transposed_ = kernels::PackedMatrix(w.dtype(), w.cols(), w.rows());
    kernels::transpose(workspace_->context, w, transposed_);
    transposed_valid_ = true;
  }
  return transposed_;
}

void Head::input_grad(const Chunk& chunk, float* dhidden) {
  const model::ModelSpec& spec = model_->spec();
  BufferPool::Handle dx = workspace_->pool.acquire(chunk.count * spec.hidden);
  kernels::matmul(workspace_->context, transposed(), chunk.logits.data(), spec.vocab, chunk.count, dx.data(),
                  spec.hidden, nullptr, model_->orders().head_input);
  for (std::int64_t i = 0; i < chunk.count; ++i)
    std::memcpy(dhidden + static_cast<std::int64_t>(chunk.unit_row(i)) * spec.hidden,
                dx.data() + i * spec.hidden, static_cast<std::size_t>(spec.hidden) * sizeof(float));
}

namespace {

// Ends of chunks of nearly equal size, each at most kHeadRows.
std::int64_t count_chunks(std::int64_t rows) {
  return (rows + kHeadRows - 1) / kHeadRows;
}
std::int64_t chunk_end(std::int64_t rows, std::int64_t chunk) {
  return rows * (chunk + 1) / count_chunks(rows);
}

}  // namespace

Result<void> Head::score(const UnitRows& rows, const float* hidden, float temperature,
                         std::span<TargetScore> scores) {
  const auto head_rows = static_cast<std::int64_t>(rows.head_rows().size());
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < count_chunks(head_rows); ++i) {
    Chunk chunk(rows, first, chunk_end(head_rows, i), model_->spec(), workspace_->pool);
    RONDO_TRY(forward(chunk, hidden, temperature, scores));
    first += chunk.count;
  }
  return {};
}

Result<void> Head::score_and_grad(const UnitRows& rows, const float* hidden, float temperature,
                                  std::span<TargetScore> scores, const Loss& loss, float* dhidden,
                                  GradientSum& sum) {
  const model::ModelSpec& spec = model_->spec();
  const model::ParamIndex head = model_->layout().head();
  std::memset(dhidden, 0,
              static_cast<std::size_t>(rows.rows()) * static_cast<std::size_t>(spec.hidden) * sizeof(float));
  const auto head_rows = static_cast<std::int64_t>(rows.head_rows().size());
  // The chains of dw run through all chunks; of one chunk alone they need not be kept.
  BufferPool::Handle dw;
  if (head_rows > kHeadRows) dw = workspace_->pool.acquire(model_->layout()[head].count());
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < count_chunks(head_rows); ++i) {
    Chunk chunk(rows, first, chunk_end(head_rows, i), spec, workspace_->pool);
    RONDO_TRY(forward(chunk, hidden, temperature, scores));
    logit_grads(chunk, temperature, scores, loss);
    input_grad(chunk, dhidden);
    if (dw.empty()) return sum.add_product(head, chunk.logits.data(), chunk.hidden.data(), chunk.count);
    kernels::weight_grad(workspace_->context, {.dy = chunk.logits.data(),
                                               .lddy = spec.vocab,
                                               .x = chunk.hidden.data(),
                                               .ldx = spec.hidden,
                                               .dw = dw.data(),
                                               .lddw = spec.hidden,
                                               .rows = chunk.count,
                                               .cols = spec.hidden,
                                               .r_begin = 0,
                                               .r_end = spec.vocab,
                                               .continue_chain = first > 0});
    first += chunk.count;
  }
  return sum.add(head, 0, spec.vocab, dw.data());
}

}  // namespace rondo::train
