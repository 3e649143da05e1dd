#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "kernels/machine_limits.h"
#include "rl/session.h"
#include "rl/step_metrics.h"
#include "train/trainer.h"

namespace rondo::cli {
namespace {

// Samples per group of the training measurement, and of random tokens for all of them.
constexpr int kGroup = 8;

// The machine's limits, measured in this run.
struct Limits {
  double bytes_per_second;
  double flops_per_second;
};

// One measurement: tokens and seconds, with the least work that they take.
struct Measurement {
  double seconds;
  double tokens;
  double bytes;  // of weights and KV that must be read
  double flops;
};

std::vector<Token> random_tokens(const rl::Session& session, std::uint32_t stream, int count) {
  const Rng rng(session.config.trainer.seed, RngPurpose::kInit);
  std::vector<Token> tokens;
  for (int i = 0; i < count; ++i)
    tokens.push_back(static_cast<Token>(rng.below({.step = stream, .position = static_cast<std::uint32_t>(i)},
                                                  static_cast<std::uint64_t>(session.model->spec().vocab))));
  return tokens;
}

// Multiply-adds per token in the layers, and in the head, times two.
double layer_flops(const model::ModelSpec& spec) {
  const double width = 1.0 * spec.qkv_width() + spec.q_width() + 3.0 * spec.intermediate;
  return 2.0 * spec.layers * width * spec.hidden;
}
double head_flops(const model::ModelSpec& spec) {
  return 2.0 * spec.vocab * spec.hidden;
}
double attention_flops(const model::ModelSpec& spec, double context) {
  return 4.0 * spec.layers * spec.q_width() * context;
}

Result<void> submit(rl::Session& session, int index, int prompt_tokens, int new_tokens) {
  engine::Request request;
  request.id = RequestId(index);
  request.group = GroupId(index);
  request.prompt = std::make_shared<const std::vector<Token>>(
      random_tokens(session, static_cast<std::uint32_t>(index), prompt_tokens));
  request.max_new_tokens = new_tokens;
  request.counter.ordinal = static_cast<std::uint32_t>(index);
  return session.engine->submit(std::move(request));
}

// Time of the steps that only decode, all `batch` responses at once.
Result<Measurement> decode_once(rl::Session& session, const BenchArgs& args, int batch) {
  const SteadyClock clock;
  const model::ModelSpec& spec = session.model->spec();
  for (int i = 0; i < batch; ++i) RONDO_TRY(submit(session, i, args.prompt_tokens, args.new_tokens));
  Measurement m{0, 0, 0, 0};
  std::vector<engine::Response> finished;
  for (double context = args.prompt_tokens; !session.engine->idle();) {
    const std::int64_t before = session.engine->stats().computed_tokens;
    const double begin = clock.now_s();
    RONDO_TRY(session.engine->step(finished));
    const double seconds = clock.now_s() - begin;
    if (session.engine->stats().computed_tokens - before != batch) continue;
    context += 1;
    m.seconds += seconds;
    m.tokens += batch;
    m.bytes += static_cast<double>(session.model->weights().bytes()) +
               batch * context * static_cast<double>(spec.kv_bytes_per_token());
    m.flops += batch * (layer_flops(spec) + head_flops(spec) + attention_flops(spec, context));
  }
  return m;
}

Result<Measurement> prefill_once(rl::Session& session, const BenchArgs& args, int batch) {
  const SteadyClock clock;
  const model::ModelSpec& spec = session.model->spec();
  const double begin = clock.now_s();
  for (int i = 0; i < batch; ++i) RONDO_TRY(submit(session, i, args.prompt_tokens, 1));
  std::vector<engine::Response> finished;
  while (!session.engine->idle()) RONDO_TRY(session.engine->step(finished));
  const double tokens = 1.0 * batch * args.prompt_tokens;
  return Measurement{clock.now_s() - begin, tokens, static_cast<double>(session.model->weights().bytes()),
                     tokens * (layer_flops(spec) + attention_flops(spec, args.prompt_tokens / 2.0)) +
                         batch * head_flops(spec)};
}

train::TrainUnit random_unit(const rl::Session& session, const BenchArgs& args, int index) {
  train::TrainUnit unit;
  unit.prompt = random_tokens(session, static_cast<std::uint32_t>(index), args.prompt_tokens);
  for (int s = 0; s < kGroup; ++s) {
    train::TrainSample sample;
    sample.tokens =
        random_tokens(session, static_cast<std::uint32_t>(1000 + index * kGroup + s), args.new_tokens);
    sample.old_logprobs.assign(sample.tokens.size(), -10.0F);
    sample.advantage = s % 2 == 0 ? 1.0F : -1.0F;
    unit.samples.push_back(std::move(sample));
  }
  return unit;
}

// Forward, backward and update of `groups` groups; a token is a row.
Result<Measurement> train_once(rl::Session& session, train::Trainer& trainer, const BenchArgs& args,
                               int groups) {
  const SteadyClock clock;
  const model::ModelSpec& spec = session.model->spec();
  const rl::Config& config = session.config;
  const double begin = clock.now_s();
  trainer.zero_grad();
  for (int g = 0; g < groups; ++g)
    RONDO_TRY(trainer.accumulate(random_unit(session, args, g), config.actor.loss, 1.0F));
  RONDO_TRY(trainer.update(config.actor.optim.optimizer, config.actor.optim.optimizer.lr, groups * kGroup));
  const double rows = groups * (args.prompt_tokens + double{kGroup} * (args.new_tokens - 1));
  const double head_rows = groups * (1 + double{kGroup} * (args.new_tokens - 1));
  const double context = args.prompt_tokens + args.new_tokens / 2.0;
  return Measurement{
      clock.now_s() - begin, rows, 3.0 * static_cast<double>(session.model->weights().bytes()),
      3.0 * (rows * (layer_flops(spec) + attention_flops(spec, context)) + head_rows * head_flops(spec))};
}

std::string as_json(const BenchArgs& args, const rl::Session& session, const Limits& limits, int batch,
                    std::vector<Measurement> runs) {
  std::sort(runs.begin(), runs.end(), [](const Measurement& a, const Measurement& b) {
    return a.seconds / a.tokens < b.seconds / b.tokens;
  });
  const auto rate = [](const Measurement& m) { return m.tokens / m.seconds; };
  const Measurement& median = runs[runs.size() / 2];
  return nlohmann::json{{"bench", args.what},
                        {"model", session.config.model.path},
                        {"dtype", kernels::dtype_name(session.model->spec().dtype)},
                        {"target", session.context.table->name},
                        {"threads", session.pool->num_threads()},
                        {"batch", batch},
                        {"prompt_tokens", args.prompt_tokens},
                        {"new_tokens", args.new_tokens},
                        {"tokens_per_second", rate(median)},
                        {"tokens_per_second_min", rate(runs.back())},
                        {"tokens_per_second_max", rate(runs.front())},
                        {"bandwidth_share", median.bytes / median.seconds / limits.bytes_per_second},
                        {"flops_share", median.flops / median.seconds / limits.flops_per_second},
                        {"read_gb_per_second", limits.bytes_per_second / 1e9},
                        {"peak_gflops", limits.flops_per_second / 1e9},
                        {"peak_memory_gb", static_cast<double>(rl::peak_memory_bytes()) / 1e9}}
             .dump() +
         "\n";
}

Result<void> run(const BenchArgs& args, Terminal& terminal) {
  RONDO_ASSIGN(const rl::Config config, rl::load_config(args.config.file, args.config.overrides));
  RONDO_ASSIGN(const auto session, rl::Session::open(config));
  const Limits limits{kernels::measure_read_bandwidth(session->context),
                      kernels::measure_fma_peak(session->context)};
  std::unique_ptr<train::Trainer> trainer;
  if (args.what == "train") {
    RONDO_ASSIGN(trainer,
                 train::Trainer::create(config.train, *session->model, *session->weights, session->context));
  }
  const auto once = [&](int batch) -> Result<Measurement> {
    if (args.what == "decode") return decode_once(*session, args, batch);
    if (args.what == "prefill") return prefill_once(*session, args, batch);
    return train_once(*session, *trainer, args, batch);
  };
  for (const int batch : args.batch) {
    std::vector<Measurement> runs;
    RONDO_TRY(once(batch));  // warm-up
    for (int i = 0; i < args.repeats; ++i) {
      RONDO_ASSIGN(const Measurement m, once(batch));
      if (m.tokens == 0)
        return fail(Code::kInvalidArgument,
                    "a batch of {} never decodes together; raise engine.batch.max_running or "
                    "engine.kv_memory",
                    batch);
      runs.push_back(m);
    }
    terminal.print(as_json(args, *session, limits, batch, std::move(runs)));
  }
  return {};
}

}  // namespace

int bench(const BenchArgs& args) {
  Terminal terminal;
  const auto result = run(args, terminal);
  return result ? 0 : report_error(result.error());
}

}  // namespace rondo::cli
