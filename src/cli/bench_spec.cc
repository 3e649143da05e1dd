#include "cli/bench_spec.h"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "cli/interrupt.h"
#include "engine/drafting.h"
#include "metrics/console.h"
#include "rl/inference_pool.h"
#include "rl/prompts.h"
#include "rl/step_profile.h"
#include "rollout/draft_server.h"
#include "rollout/local_draft_transport.h"

namespace rondo::cli {
namespace {

// One engine, its drafts, and what it generates.
struct Bench {
  const rl::Session& session;
  const SpecBenchArgs& args;
  const rl::PromptSet& prompts;
  engine::Engine& engine;
  rollout::DraftServer& server;
  engine::Drafting& drafting;
  std::int64_t version = 0;  // of the drafts: each run starts without any
};

struct Run {
  double seconds = 0;
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  std::map<RequestId, std::vector<Token>> tokens;
};

// Speculation beside plain decoding, of one batch size.
struct Comparison {
  int batch = 0;
  double plain_rate = 0;  // tokens per second, medians
  double spec_rate = 0;
  std::vector<double> ratios;  // of times, speculating / plain, ascending
  double accept_length = 1;    // tokens per response and step
  double drafted = 0;          // tokens per response and step

  double quantile(double q) const {
    return ratios[static_cast<std::size_t>(q * static_cast<double>(ratios.size() - 1) + 0.5)];
  }
};

Result<void> submit(const Bench& bench, int batch) {
  const rl::Config& config = bench.session.config;
  const int n = config.rollout.sampling.n;
  for (int i = 0; i < batch; ++i) {
    const auto group = static_cast<std::size_t>(i / n);
    if (group >= bench.prompts.prompts.size())
      return fail(Code::kInvalidArgument,
                  "data.train_files has {} prompts, too few for {} responses in groups of {}",
                  bench.prompts.prompts.size(), batch, n);
    engine::Request request;
    request.id = RequestId(i);
    request.group = GroupId(i / n);
    request.prompt = bench.prompts.prompts[group].tokens;
    request.max_new_tokens = bench.args.new_tokens;
    request.sampling = config.rollout.sampling.params;
    request.rng = Rng(config.trainer.seed, RngPurpose::kRollout);
    request.counter.ordinal = static_cast<std::uint32_t>(group);
    request.counter.sample = static_cast<std::uint32_t>(i % n);
    RONDO_TRY(bench.engine.submit(std::move(request)));
  }
  return {};
}

// As Instance does it, on this thread. Prompts are computed before the clock starts.
Result<Run> run_once(Bench& bench, int batch, bool speculates) {
  bench.server.clear(PolicyVersion(++bench.version));
  bench.drafting.drop_all();
  bench.engine.drop_kv();
  bench.engine.set_drafter({});
  RONDO_TRY(submit(bench, batch));
  for (int i = 0; i < batch; ++i)
    bench.drafting.begin(RequestId(i), GroupId(i / bench.session.config.rollout.sampling.n), {});
  std::vector<engine::Response> finished;
  while (bench.engine.progress(RequestId(batch - 1)).tokens.empty()) RONDO_TRY(bench.engine.step(finished));
  if (speculates)
    bench.engine.set_drafter(
        [&bench](auto contexts, batch::Drafts& drafts) { bench.drafting.propose(contexts, drafts); });
  const batch::Planner::Stats before = bench.engine.stats();
  const SteadyClock clock;
  const double begin = clock.now_s();
  while (!bench.engine.idle()) {
    RONDO_TRY(check_interrupts());
    RONDO_TRY(bench.engine.step(finished));
    if (speculates) bench.drafting.observe(bench.engine.verdicts());
  }
  Run run{.seconds = clock.now_s() - begin,
          .drafted = bench.engine.stats().drafted_tokens - before.drafted_tokens,
          .accepted = bench.engine.stats().accepted_tokens - before.accepted_tokens,
          .tokens = {}};
  for (engine::Response& response : finished) run.tokens[response.id] = std::move(response.tokens);
  return run;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// The two take turns in who comes first, so that a drift of the machine's speed meets both.
Result<Comparison> compare(Bench& bench, int batch) {
  std::vector<double> plain_times, spec_times;
  Comparison result;
  result.batch = batch;
  std::int64_t drafted = 0, accepted = 0;
  for (int round = -1; round < bench.args.repeats; ++round) {
    const bool spec_first = round % 2 == 0;
    RONDO_ASSIGN(Run first, run_once(bench, batch, spec_first));
    RONDO_ASSIGN(Run second, run_once(bench, batch, !spec_first));
    if (first.tokens != second.tokens)
      return fail(Code::kInternal, "speculation gave other tokens: this is a bug in rondo");
    if (round < 0) continue;  // warm-up, in which acceptance is learned as well
    const Run& plain = spec_first ? second : first;
    const Run& spec = spec_first ? first : second;
    plain_times.push_back(plain.seconds);
    spec_times.push_back(spec.seconds);
    result.ratios.push_back(spec.seconds / plain.seconds);
    drafted += spec.drafted;
    accepted += spec.accepted;
  }
  std::ranges::sort(result.ratios);
  const double tokens = 1.0 * batch * (bench.args.new_tokens - 1);
  const double steps = tokens * bench.args.repeats - static_cast<double>(accepted);
  result.plain_rate = tokens / median(plain_times);
  result.spec_rate = tokens / median(spec_times);
  result.accept_length = tokens * bench.args.repeats / steps;
  result.drafted = static_cast<double>(drafted) / steps;
  return result;
}

std::string as_json(const Bench& bench, const Comparison& c) {
  return nlohmann::json{{"bench", "spec"},
                        {"model", bench.session.config.model.path},
                        {"threads", bench.session.pool->num_threads()},
                        {"batch", c.batch},
                        {"new_tokens", bench.args.new_tokens},
                        {"tokens_per_second", c.plain_rate},
                        {"tokens_per_second_spec", c.spec_rate},
                        {"time_ratio", c.quantile(0.5)},
                        {"time_ratio_quartiles", {c.quantile(0.25), c.quantile(0.75)}},
                        {"accept_len", c.accept_length},
                        {"drafted_per_step", c.drafted}}
             .dump() +
         "\n";
}

std::string as_table(const std::vector<Comparison>& comparisons) {
  metrics::ConsoleTable table(
      {"batch", "plain tokens/s", "spec tokens/s", "time spec/plain", "quartiles", "drafted", "accept len"});
  for (const Comparison& c : comparisons)
    table.add_row({fmt::format("{}", c.batch), fmt::format("{:.0f}", c.plain_rate),
                   fmt::format("{:.0f}", c.spec_rate), fmt::format("{:.3f}", c.quantile(0.5)),
                   fmt::format("{:.3f} … {:.3f}", c.quantile(0.25), c.quantile(0.75)),
                   fmt::format("{:.2f}", c.drafted), fmt::format("{:.2f}", c.accept_length)});
  return table.to_string();
}

}  // namespace

Result<void> bench_spec(rl::Session& session, const SpecBenchArgs& args, Terminal& terminal) {
  session.inference.reset();  // an engine of its own, stepped here
  const rl::Config& config = session.config;
  const int most = config.engine.batch.max_running;
  if (args.new_tokens < 2 || std::ranges::any_of(args.batches, [most](int b) { return b < 1 || b > most; }))
    return fail(Code::kInvalidArgument,
                "--batch must be from 1 to engine.batch.max_running = {}, --new-tokens at least 2", most);
  RONDO_ASSIGN_CTX(const rl::PromptSet prompts,
                   rl::load_prompts(config.data.train_files, config.data, config.model.path,
                                    *session.tokenizer, data::GroundTruth::kOptional),
                   "data.train_files");
  RONDO_ASSIGN(const auto engine, engine::Engine::create(config.engine, *session.model,
                                                         session.tokenizer.get(), session.context));
  const rl::StepProfileKey key{config, *session.model, session.context.table->name,
                               session.pool->num_threads()};
  RONDO_ASSIGN(const rollout::StepCost cost,
               rl::load_or_measure_step_cost(key, *engine, &catch_interrupts()));
  const SteadyClock clock;
  RONDO_ASSIGN(const auto server, rollout::DraftServer::create({}, clock));
  rollout::LocalDraftTransport transport(*server);
  RONDO_ASSIGN(const auto drafting,
               engine::Drafting::create(rl::drafting_config(config.rollout.spec), cost, transport));
  Bench bench{session, args, prompts, *engine, *server, *drafting};
  std::vector<Comparison> comparisons;
  for (const int batch : args.batches) {
    RONDO_ASSIGN(Comparison comparison, compare(bench, batch));
    terminal.print(as_json(bench, comparison));
    comparisons.push_back(std::move(comparison));
  }
  terminal.print(as_table(comparisons));
  return {};
}

}  // namespace rondo::cli
