// A small decode and a small train step, to count their instructions:
//   instruction_probe decode|train
// Runs the case on one thread with the AVX2 kernels. instruction_count_test.py counts inside run_measured
// alone, so making the model does not count.
#include <cstdio>
#include <functional>
#include <string_view>

#include "engine/engine.h"
#include "testing/tiny_model.h"
#include "train/adamw.h"
#include "train/gradient_sum.h"
#include "train/unit_pass.h"
#include "train/workspace.h"

namespace {

using namespace rondo;

constexpr std::uint32_t kSeed = 5;
constexpr int kRequests = 8;
constexpr int kPromptTokens = 24;
constexpr int kNewTokens = 16;

// Wide enough that kernels, not bookkeeping, make up the count, as in a real model.
model::ModelSpec small_spec() {
  model::ModelSpec spec = testing::tiny_spec(kernels::DType::kF16);
  spec.hidden = 192;
  spec.intermediate = 512;
  spec.layers = 3;
  spec.heads = 6;
  spec.kv_heads = 2;
  spec.head_dim = 32;
  spec.vocab = 2048;
  return spec;
}

engine::Request request(int index, std::int32_t vocab) {
  engine::Request request;
  request.id = RequestId(index);
  request.group = GroupId(index);
  request.prompt = std::make_shared<const std::vector<Token>>(
      testing::random_tokens(vocab, kPromptTokens, static_cast<std::uint32_t>(index)));
  request.max_new_tokens = kNewTokens;
  request.counter.ordinal = static_cast<std::uint32_t>(index);
  return request;
}

train::TrainUnit unit(std::int32_t vocab) {
  train::TrainUnit unit{testing::random_tokens(vocab, kPromptTokens, kSeed), {}};
  for (std::uint32_t s = 0; s < kRequests; ++s) {
    train::TrainSample sample;
    sample.tokens = testing::random_tokens(vocab, kNewTokens, kSeed + 1 + s);
    sample.old_logprobs.assign(sample.tokens.size(), -8.0F);
    sample.advantage = s % 2 == 0 ? 1.0F : -1.0F;
    unit.samples.push_back(std::move(sample));
  }
  return unit;
}

}  // namespace

// Runs `work`; found by name from outside, so neither inlined, renamed nor left by a tail call.
extern "C" [[gnu::noinline]] void run_measured(const std::function<void()>& work) {
  work();
  asm volatile("" ::: "memory");
}

namespace {

Result<void> decode(model::Model& model, const kernels::Context& context) {
  RONDO_ASSIGN(const auto engine, engine::Engine::create({}, model, nullptr, context));
  Result<void> outcome;
  run_measured([&] {
    std::vector<engine::Response> finished;
    for (int i = 0; outcome && i < kRequests; ++i) outcome = engine->submit(request(i, model.spec().vocab));
    while (outcome && !engine->idle()) outcome = engine->step(finished);
  });
  return outcome;
}

Result<void> train_step(model::Model& model, const kernels::Context& context) {
  train::Workspace workspace(context);
  train::UnitPass pass(model, workspace, std::size_t{64} << 20);
  train::GradientSum sum(model.layout(), context);
  train::AdamW optimizer(model.layout(), context);
  const train::TrainUnit work = unit(model.spec().vocab);
  const double normalizer = kRequests * kNewTokens;
  Result<void> outcome;
  run_measured([&] {
    const auto report = pass.accumulate(work, {}, 1.0F, sum);
    if (!report) {
      outcome = tl::unexpected<Status>(report.error());
      return;
    }
    const auto update = optimizer.update({}, 1e-5, normalizer, sum, model.weights());
    if (!update) outcome = tl::unexpected<Status>(update.error());
  });
  return outcome;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc == 2 ? argv[1] : "";
  if (what != "decode" && what != "train") {
    std::fputs("usage: instruction_probe decode|train\n", stderr);
    return 2;
  }
  const testing::Compute compute(1, "avx2");
  const auto model = testing::random_model(small_spec(), kSeed, 0.05F);
  const auto done =
      what == "decode" ? decode(*model, compute.context()) : train_step(*model, compute.context());
  if (!done) {
    std::fprintf(stderr, "instruction_probe: %s\n", done.error().to_string().c_str());
    return 1;
  }
  return 0;
}
