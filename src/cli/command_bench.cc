#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/clock.h"
#include "base/file.h"
#include "cli/bench_options.h"
#include "cli/bench_rollout.h"
#include "cli/bench_spec.h"
#include "cli/bench_step.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "data/json_lines.h"
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

// What the measurements run on: a loaded model, and prompts if a file gave them.
struct Bench {
  const BenchArgs& args;
  rl::Session& session;
  engine::Engine& engine;  // stepped here, one step at a time
  std::vector<std::vector<Token>> prompts;
};

// All measurements of one batch size, and the most memory that the process held until then.
struct BatchResult {
  int batch;
  std::vector<Measurement> runs;
  std::int64_t peak_memory_bytes;
};

std::vector<Token> random_tokens(const rl::Session& session, std::uint32_t stream, int count) {
  const Rng rng(session.config.trainer.seed, RngPurpose::kInit);
  std::vector<Token> tokens;
  tokens.reserve(static_cast<std::size_t>(count));
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

// Rows {"tokens": [id, …]}.
Result<std::vector<std::vector<Token>>> read_prompts(const std::string& path) {
  RONDO_ASSIGN(const std::string bytes, read_file(path));
  std::vector<std::vector<Token>> prompts;
  const auto add = [&](const nlohmann::json& row, std::int64_t) -> Result<void> {
    const auto tokens = row.find("tokens");
    const auto is_token = [](const nlohmann::json& id) {
      return id.is_number_integer() && id >= 0 && id <= std::numeric_limits<Token>::max();
    };
    if (tokens == row.end() || !tokens->is_array() || !std::all_of(tokens->begin(), tokens->end(), is_token))
      return fail(Code::kInvalidArgument, "a row of --prompts is {{\"tokens\": [id, …]}}");
    prompts.push_back(tokens->get<std::vector<Token>>());
    return {};
  };
  RONDO_TRY(data::for_each_json_line(bytes, path, add));
  return prompts;
}

// Prompt `index`, from the file if there is one.
Result<std::vector<Token>> prompt_tokens(const Bench& bench, int index) {
  const int count = bench.args.prompt_tokens;
  if (bench.args.prompts.empty())
    return random_tokens(bench.session, static_cast<std::uint32_t>(index), count);
  const auto row = static_cast<std::size_t>(index);
  if (row >= bench.prompts.size() || bench.prompts[row].size() < static_cast<std::size_t>(count))
    return fail(Code::kInvalidArgument,
                "{} has no prompt number {} of at least {} tokens; lower --batch or --prompt-tokens",
                bench.args.prompts, index + 1, count);
  return std::vector<Token>(bench.prompts[row].begin(), bench.prompts[row].begin() + count);
}

Result<void> submit(const Bench& bench, int index, int new_tokens) {
  engine::Request request;
  request.id = RequestId(index);
  request.group = GroupId(index);
  RONDO_ASSIGN(std::vector<Token> prompt, prompt_tokens(bench, index));
  request.prompt = std::make_shared<const std::vector<Token>>(std::move(prompt));
  request.max_new_tokens = new_tokens;
  request.counter.ordinal = static_cast<std::uint32_t>(index);
  return bench.engine.submit(std::move(request));
}

// Time of the steps that only decode, all `batch` responses at once.
Result<Measurement> decode_once(const Bench& bench, int batch) {
  const SteadyClock clock;
  rl::Session& session = bench.session;
  const BenchArgs& args = bench.args;
  const model::ModelSpec& spec = session.model->spec();
  for (int i = 0; i < batch; ++i) RONDO_TRY(submit(bench, i, args.new_tokens));
  Measurement m{0, 0, 0, 0};
  std::vector<engine::Response> finished;
  for (double context = args.prompt_tokens; !bench.engine.idle();) {
    const std::int64_t before = bench.engine.stats().computed_tokens;
    RONDO_TRY(check_interrupts());
    const double begin = clock.now_s();
    RONDO_TRY(bench.engine.step(finished));
    const double seconds = clock.now_s() - begin;
    if (bench.engine.stats().computed_tokens - before != batch) continue;
    context += 1;
    m.seconds += seconds;
    m.tokens += batch;
    m.bytes += static_cast<double>(session.model->weights().bytes()) +
               batch * context * static_cast<double>(spec.kv_bytes_per_token());
    m.flops += batch * (layer_flops(spec) + head_flops(spec) + attention_flops(spec, context));
  }
  return m;
}

Result<Measurement> prefill_once(const Bench& bench, int batch) {
  const SteadyClock clock;
  rl::Session& session = bench.session;
  const BenchArgs& args = bench.args;
  const model::ModelSpec& spec = session.model->spec();
  const double begin = clock.now_s();
  for (int i = 0; i < batch; ++i) RONDO_TRY(submit(bench, i, 1));
  std::vector<engine::Response> finished;
  while (!bench.engine.idle()) {
    RONDO_TRY(check_interrupts());
    RONDO_TRY(bench.engine.step(finished));
  }
  const double tokens = 1.0 * batch * args.prompt_tokens;
  return Measurement{clock.now_s() - begin, tokens, static_cast<double>(session.model->weights().bytes()),
                     tokens * (layer_flops(spec) + attention_flops(spec, args.prompt_tokens / 2.0)) +
                         batch * head_flops(spec)};
}

Result<train::TrainUnit> random_unit(const Bench& bench, int index) {
  train::TrainUnit unit;
  RONDO_ASSIGN(unit.prompt, prompt_tokens(bench, index));
  for (int s = 0; s < kGroup; ++s) {
    train::TrainSample sample;
    sample.tokens = random_tokens(bench.session, static_cast<std::uint32_t>(1000 + index * kGroup + s),
                                  bench.args.new_tokens);
    sample.old_logprobs.assign(sample.tokens.size(), -10.0F);
    sample.advantage = s % 2 == 0 ? 1.0F : -1.0F;
    unit.samples.push_back(std::move(sample));
  }
  return unit;
}

// Forward, backward and update of `groups` groups; a token is a row.
Result<Measurement> train_once(const Bench& bench, train::Trainer& trainer, int groups) {
  const SteadyClock clock;
  const rl::Session& session = bench.session;
  const BenchArgs& args = bench.args;
  const model::ModelSpec& spec = session.model->spec();
  const rl::Config& config = session.config;
  const double begin = clock.now_s();
  trainer.zero_grad();
  for (int g = 0; g < groups; ++g) {
    RONDO_ASSIGN(const train::TrainUnit unit, random_unit(bench, g));
    RONDO_TRY(trainer.accumulate(unit, config.actor.loss, 1.0F));
  }
  RONDO_TRY(trainer.update(config.actor.optim.optimizer, config.actor.optim.optimizer.lr, groups * kGroup));
  const double rows = groups * (args.prompt_tokens + double{kGroup} * (args.new_tokens - 1));
  const double head_rows = groups * (1 + double{kGroup} * (args.new_tokens - 1));
  const double context = args.prompt_tokens + args.new_tokens / 2.0;
  return Measurement{
      clock.now_s() - begin, rows, 3.0 * static_cast<double>(session.model->weights().bytes()),
      3.0 * (rows * (layer_flops(spec) + attention_flops(spec, context)) + head_rows * head_flops(spec))};
}

std::string as_json(const Bench& bench, BatchResult result, const Limits& limits) {
  const BenchArgs& args = bench.args;
  const rl::Session& session = bench.session;
  std::vector<Measurement>& runs = result.runs;
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
                        {"batch", result.batch},
                        {"prompt_tokens", args.prompt_tokens},
                        {"new_tokens", args.new_tokens},
                        {"tokens_per_second", rate(median)},
                        {"tokens_per_second_min", rate(runs.back())},
                        {"tokens_per_second_max", rate(runs.front())},
                        {"bandwidth_share", median.bytes / median.seconds / limits.bytes_per_second},
                        {"flops_share", median.flops / median.seconds / limits.flops_per_second},
                        {"read_gb_per_second", limits.bytes_per_second / 1e9},
                        {"peak_gflops", limits.flops_per_second / 1e9},
                        {"peak_memory_gb", static_cast<double>(result.peak_memory_bytes) / 1e9}}
             .dump() +
         "\n";
}

// The machine's limits with one thread and with all.
Result<void> run_limits(const rl::Config& config, Terminal& terminal) {
  RONDO_ASSIGN_CTX(const auto* const table, kernels::find_target(config.trainer.kernel_target),
                   "trainer.kernel_target");
  const int all = rl::resolve_threads(config.trainer.threads);
  for (int threads = 1; threads <= all; threads = threads == 1 && all > 1 ? all : all + 1) {
    ThreadPool pool(threads);
    const kernels::Context context{table, &pool};
    terminal.print(nlohmann::json{{"bench", "limits"},
                                  {"target", table->name},
                                  {"threads", threads},
                                  {"read_gb_per_second", kernels::measure_read_bandwidth(context) / 1e9},
                                  {"peak_gflops", kernels::measure_fma_peak(context) / 1e9}}
                       .dump() +
                   "\n");
  }
  return {};
}

// Whole steps, without a warm-up: the first is as a run's first.
Result<void> run_steps(int steps, rl::Session& session, train::Trainer& trainer, Terminal& terminal) {
  const rl::DataSection& data = session.config.data;
  RONDO_ASSIGN_CTX(const rl::PromptSet prompts,
                   rl::load_prompts(data.train_files, data, session.config.model.path, *session.tokenizer,
                                    data::GroundTruth::kOptional),
                   "data.train_files");
  for (int step = 1; step <= steps; ++step) {
    RONDO_TRY(check_interrupts());
    RONDO_ASSIGN(const StepMeasurement m, measure_step(session, trainer, prompts, step));
    terminal.print(step_as_json(m, session, trainer, step));
  }
  return {};
}

Result<void> measure_batches(const Bench& bench, train::Trainer* trainer, std::vector<BatchResult>& results) {
  const auto once = [&](int batch) -> Result<Measurement> {
    if (bench.args.what == "decode") return decode_once(bench, batch);
    if (bench.args.what == "prefill") return prefill_once(bench, batch);
    return train_once(bench, *trainer, batch);
  };
  for (const int batch : bench.args.batch) {
    std::vector<Measurement> runs;
    RONDO_TRY(once(batch));  // warm-up
    for (int i = 0; i < bench.args.repeats; ++i) {
      RONDO_TRY(check_interrupts());
      RONDO_ASSIGN(const Measurement m, once(batch));
      if (m.tokens == 0)
        return fail(Code::kInvalidArgument, "a batch of {} never decodes together; raise engine.kv_memory",
                    batch);
      runs.push_back(m);
    }
    results.push_back({batch, std::move(runs), rl::peak_memory_bytes()});
  }
  return {};
}

// The limits come last: the buffer that measures bandwidth would be part of the peak memory.
Result<void> run_batches(const Bench& bench, train::Trainer* trainer, Terminal& terminal) {
  std::vector<BatchResult> results;
  Result<void> outcome = measure_batches(bench, trainer, results);
  const kernels::Context& context = bench.session.context;
  const Limits limits{kernels::measure_read_bandwidth(context), kernels::measure_fma_peak(context)};
  for (BatchResult& result : results) terminal.print(as_json(bench, std::move(result), limits));
  return outcome;
}

// An option without effect would look as if it had one.
Result<void> check_options(const BenchArgs& args) {
  const std::vector<std::string> heeded = options_of(args.what);
  for (const std::string& option : args.given)
    if (std::find(heeded.begin(), heeded.end(), option) == heeded.end())
      return fail(Code::kInvalidArgument,
                  "{} has no effect on `rondo bench {}`, which heeds {}; leave it out", option, args.what,
                  heeded.empty() ? "none of the options" : fmt::format("{}", fmt::join(heeded, ", ")));
  if (args.what == "decode" && args.new_tokens < 2)
    return fail(
        Code::kInvalidArgument,
        "--new-tokens must be at least 2: the first comes with the prompt, and only steps that decode are "
        "measured");
  return {};
}

// Said before minutes are spent on batches of which the largest never runs.
Result<void> check_decode_batches(const BenchArgs& args, const rl::Config& config) {
  const int most = config.engine.batch.max_running;
  for (const int batch : args.batch)
    if (args.what == "decode" && batch > most)
      return fail(
          Code::kInvalidArgument,
          "--batch: {} responses never decode together, engine.batch.max_running = {}; raise it or lower "
          "--batch",
          batch, most);
  return {};
}

Result<void> run(const BenchArgs& args, Terminal& terminal) {
  RONDO_TRY(check_options(args));
  if (args.what == "limits") {  // needs no model, so the rest of the config may be missing
    RONDO_ASSIGN(const rl::Config config, rl::read_config(args.config.file, args.config.overrides));
    return run_limits(config, terminal);
  }
  RONDO_ASSIGN(const rl::Config config, load_for_generation(args.config));
  RONDO_TRY(check_decode_batches(args, config));
  std::vector<std::vector<Token>> prompts;
  if (!args.prompts.empty()) {
    RONDO_ASSIGN_CTX(prompts, read_prompts(args.prompts), "--prompts");
  }
  RolloutPlan plan;
  if (args.what == "rollout") {
    RONDO_ASSIGN(plan, plan_bench_rollout(args, config));
  }
  RONDO_ASSIGN(const auto session, rl::Session::open(config, &catch_interrupts()));
  if (args.what == "rollout") return bench_rollout(*session, args, plan, terminal);
  if (args.what == "spec")
    return bench_spec(
        *session, {.batches = args.batch, .new_tokens = args.new_tokens, .repeats = args.repeats}, terminal);
  std::unique_ptr<train::Trainer> trainer;
  if (args.what == "train" || args.what == "step") {
    RONDO_ASSIGN(trainer,
                 train::Trainer::create(config.train, *session->model, *session->weights, session->context));
    session->weights.reset();  // as training does: the masters are in the trainer now
  }
  if (args.what == "step") return run_steps(args.repeats, *session, *trainer, terminal);
  // The instances of a session step their engines on threads of their own; an engine has one owner.
  session->inference.reset();
  RONDO_ASSIGN(const auto engine, engine::Engine::create(config.engine, *session->model,
                                                         session->tokenizer.get(), session->context));
  return run_batches({args, *session, *engine, std::move(prompts)}, trainer.get(), terminal);
}

}  // namespace

int bench(const BenchArgs& args) {
  Terminal terminal;
  return exit_code(run(args, terminal), terminal);
}

}  // namespace rondo::cli
