#include "cli/bench_rollout.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/interrupt.h"
#include "metrics/console.h"
#include "rl/generation.h"
#include "rl/prompts.h"
#include "rl/timeline_files.h"
#include "sim/trace.h"
#include "timeline/page.h"

namespace rondo::cli {
namespace {

// A tail shorter than this is a few engine steps: its change says nothing.
constexpr double kLeastTailSeconds = 0.05;

using Variant = RolloutPlan::Variant;

// One rollout.
struct Outcome {
  double seconds = 0;
  double tail_seconds = 0;
  std::int64_t tokens = 0;
  batch::Planner::Stats engine;
  engine::Drafting::Stats drafting;
  rollout::Dispatcher::Stats dispatch;
  std::uint64_t digest = 0;  // of all tokens
  std::vector<std::int32_t> lengths;
  timeline::Timeline timeline;  // empty where it is not wanted

  double tokens_per_second() const { return static_cast<double>(tokens) / seconds; }
  // `partial` leaves some out.
  std::int64_t num_responses() const { return std::ssize(lengths) - std::ranges::count(lengths, 0); }
  // Tokens per sequence and step.
  double accept_length() const {
    if (drafting.sequence_steps == 0) return 1.0;
    return 1.0 + static_cast<double>(engine.accepted_tokens) / static_cast<double>(drafting.sequence_steps);
  }
};

Result<Variant> parse_variant(const std::string& name) {
  RONDO_ASSIGN_CTX(const rollout::PolicyChoice choice, rollout::parse_policy(name), "--policies");
  const bool whole = rollout::rules_of(choice.policy).strictly_synchronous;
  return Variant{.name = name,
                 .label = whole ? name : name + " (not strictly synchronous)",
                 .policy = choice.policy,
                 .spec = choice.speculates};
}

// What each part of rondo adds: chunks, then the order by what a group's samples tell, then what earlier
// steps tell, then speculation.
Result<std::vector<Variant>> ablation_variants() {
  constexpr std::array kSteps = {std::pair{"group_round_robin", "base"}, std::pair{"fifo", "+ divided"},
                                 std::pair{"seer", "+ context"}, std::pair{"seer_plus", "+ learned lengths"},
                                 std::pair{"seer_plus+spec", "+ speculation"}};
  std::vector<Variant> variants;
  for (const auto& [name, label] : kSteps) {
    RONDO_ASSIGN(Variant variant, parse_variant(name));
    variant.label = fmt::format("{} ({})", label, name);
    variants.push_back(std::move(variant));
  }
  return variants;
}

Result<std::vector<Variant>> variants_of(const BenchArgs& args) {
  if (args.ablation) return ablation_variants();
  std::vector<Variant> variants;
  bool lengths_known = !args.lengths.empty();
  const std::vector<std::string> usual = {"group_round_robin", "seer", "seer_plus", "seer_plus+spec"};
  for (const std::string& name : args.policies.empty() ? usual : args.policies) {
    RONDO_ASSIGN(Variant variant, parse_variant(name));
    if (rollout::rules_of(variant.policy).needs_true_lengths && !lengths_known)
      return fail(
          Code::kInvalidArgument,
          "--policies: {} needs the lengths of the responses beforehand; name a policy before it that "
          "generates them (--policies seer_plus,{}), or give them with --lengths FILE",
          name, name);
    lengths_known = lengths_known || variant.policy != rollout::Policy::kPartial;
    variants.push_back(std::move(variant));
  }
  return variants;
}

// Into `plan`: the lengths of the first prompts and samples of the file, in order, and what the prompts
// behind them tell, as earlier steps would. Nothing without a file.
Result<void> replay_lengths(const rl::Config& config, const std::string& path, RolloutPlan& plan) {
  if (path.empty()) return {};
  RONDO_ASSIGN_CTX(const std::string text, read_file(path), "--lengths");
  RONDO_ASSIGN_CTX(const sim::Trace trace, sim::parse_trace({}, text, path), "--lengths");
  const auto prompts = static_cast<std::size_t>(config.data.train_batch_size);
  const auto samples = static_cast<std::size_t>(config.rollout.sampling.n);
  if (trace.groups.size() < prompts)
    return fail(Code::kInvalidArgument, "--lengths: {} has {} prompts, data.train_batch_size asks for {}",
                path, trace.groups.size(), prompts);
  std::vector<std::int32_t>& lengths = plan.exact_lengths;
  for (const rollout::GroupSpec& group : std::span(trace.groups).first(prompts)) {
    if (group.samples.size() < samples)
      return fail(Code::kInvalidArgument,
                  "--lengths: {} has {} samples of each prompt, rollout.n asks for {}", path,
                  group.samples.size(), samples);
    for (const rollout::SampleSpec& sample : std::span(group.samples).first(samples))
      lengths.push_back(sample.true_tokens);
  }
  const std::int32_t longest = std::ranges::max(lengths);
  if (longest > config.data.max_response_length)
    return fail(Code::kInvalidArgument,
                "--lengths: a response of {} tokens exceeds data.max_response_length = {}; set it to {}",
                longest, config.data.max_response_length, longest);
  plan.prior = rollout::learn({}, rollout::sample_of(std::span(trace.groups).subspan(prompts)));
  return {};
}

// Prompts [begin, begin + count) of the data, as far as there are any.
std::vector<const rl::Prompt*> prompts_from(const rl::PromptSet& set, std::size_t begin, std::size_t count) {
  std::vector<const rl::Prompt*> prompts;
  for (std::size_t i = begin; i < std::min(begin + count, set.prompts.size()); ++i)
    prompts.push_back(&set.prompts[i]);
  return prompts;
}

// As many prompts as a step has, the first of the data.
Result<std::vector<const rl::Prompt*>> first_prompts(const rl::Session& session, const rl::PromptSet& set) {
  const auto wanted = static_cast<std::size_t>(session.config.data.train_batch_size);
  if (set.prompts.size() < wanted)
    return fail(Code::kInvalidArgument, "data.train_files has {} prompts, data.train_batch_size asks for {}",
                set.prompts.size(), wanted);
  return prompts_from(set, 0, wanted);
}

// What all variants run on.
struct Bench {
  rl::Session& session;
  const BenchArgs& args;
  std::vector<const rl::Prompt*> prompts;
  std::span<const std::int32_t> exact_lengths;  // empty: natural ones
  rollout::LengthPrior prior;                   // what earlier steps would have taught
};

Result<void> make_pool(const Bench& bench, const Variant& variant, std::string input_log) {
  rl::Session& session = bench.session;
  rl::Config config = session.config;
  if (session.inference != nullptr)  // measured once for all
    config.rollout.schedule.move_threshold = session.inference->scheduler_config().move_threshold;
  session.inference.reset();
  config.rollout.schedule.policy = variant.policy;
  config.rollout.spec.enabled = variant.spec;
  config.rollout.input_log = std::move(input_log);
  RONDO_ASSIGN(session.inference,
               rl::InferencePool::create(config, *session.model, *session.tokenizer, session.context));
  session.inference->set_length_prior(bench.prior);
  return {};
}

// A training run has seen the lengths of earlier steps; here a rollout of the prompts behind the measured
// ones stands for them.
Result<void> learn_lengths(Bench& bench, const rl::PromptSet& set) {
  rl::Session& session = bench.session;
  const std::vector<const rl::Prompt*> prompts =
      prompts_from(set, bench.prompts.size(), bench.prompts.size());
  if (prompts.empty()) return {};
  RONDO_TRY(make_pool(bench, {.name = {}, .label = {}, .policy = rollout::Policy::kSeerPlus}, {}));
  rl::GenerationStats stats;
  RONDO_TRY(rl::generate(session,
                         {.prompts = prompts,
                          .sampling = &session.config.rollout.sampling,
                          .purpose = RngPurpose::kRollout,
                          .step = 0},
                         {}, catch_interrupts(), stats));
  bench.prior = session.inference->length_prior();
  return {};
}

bool any_learns(std::span<const Variant> variants) {
  return std::ranges::any_of(variants,
                             [](const Variant& v) { return rollout::rules_of(v.policy).learns_lengths; });
}

// `true_lengths` are what the oracles know.
Result<Outcome> run_once(const Bench& bench, const Variant& variant,
                         std::span<const std::int32_t> true_lengths) {
  rl::Session& session = bench.session;
  const std::string& trace = bench.args.trace;
  RONDO_TRY(make_pool(
      bench, variant,
      trace.empty() ? session.config.rollout.input_log : fmt::format("{}/{}.inputs", trace, variant.name)));
  rl::GenerationStats stats;
  const bool partial = variant.policy == rollout::Policy::kPartial;
  const auto wanted = static_cast<double>(bench.prompts.size()) / session.config.rollout.schedule.over_issue;
  const SteadyClock clock;
  timeline::Recorder recorder(variant.label, clock.now_ns());
  RONDO_ASSIGN(
      const auto groups,
      rl::generate(session,
                   {.prompts = bench.prompts,
                    .sampling = &session.config.rollout.sampling,
                    .purpose = RngPurpose::kRollout,
                    .step = 1,
                    .true_lengths = true_lengths,
                    .exact_lengths = bench.exact_lengths,
                    .goal_groups = partial ? std::max<std::int64_t>(1, static_cast<std::int64_t>(wanted)) : 0,
                    .timeline = bench.args.trace.empty() ? nullptr : &recorder},
                   {}, catch_interrupts(), stats));
  Outcome outcome;
  std::vector<Token> all;
  for (const rl::ScoredGroup& group : groups) {
    for (const rl::ScoredResponse& sample : group.samples) {
      const std::vector<Token>& tokens = sample.response.tokens;
      all.insert(all.end(), tokens.begin(), tokens.end());
      outcome.lengths.push_back(static_cast<std::int32_t>(tokens.size()));
    }
  }
  outcome.tokens = std::ssize(all);
  outcome.digest = checksum(std::as_bytes(std::span(all)));
  outcome.timeline = recorder.finish(clock.now_ns());
  outcome.dispatch = stats.dispatch;
  outcome.engine = session.inference->engine_stats();
  outcome.drafting = session.inference->draft_stats();
  outcome.seconds = stats.dispatch.seconds;
  outcome.tail_seconds = stats.dispatch.tail_seconds;
  return outcome;
}

std::string as_json(const rl::Session& session, const Variant& variant, const Outcome& o) {
  const rl::Config& config = session.config;
  return nlohmann::json{{"bench", "rollout"},
                        {"variant", variant.name},
                        {"model", config.model.path},
                        {"instances", config.rollout.instances},
                        {"strictly_synchronous", rollout::rules_of(variant.policy).strictly_synchronous},
                        {"responses", o.num_responses()},
                        {"tokens", o.tokens},
                        {"seconds", o.seconds},
                        {"tokens_per_second", o.tokens_per_second()},
                        {"tail_seconds", o.tail_seconds},
                        {"computed_tokens", o.engine.computed_tokens},
                        {"chunks", o.dispatch.chunks},
                        {"migrations", o.dispatch.migrations},
                        {"migrated_bytes", o.dispatch.migrated_bytes},
                        {"preempted", o.engine.preemptions},
                        {"recomputed_tokens", o.engine.recomputed_tokens + o.dispatch.recomputed_tokens},
                        {"drafted_tokens", o.engine.drafted_tokens},
                        {"accepted_tokens", o.engine.accepted_tokens},
                        {"accept_len", o.accept_length()}}
             .dump() +
         "\n";
}

const Outcome& median_of(std::vector<Outcome>& outcomes) {
  std::ranges::sort(outcomes, {}, &Outcome::seconds);
  return outcomes[outcomes.size() / 2];
}

std::string tail_change(const Outcome& outcome, const Outcome& base) {
  if (base.tail_seconds < kLeastTailSeconds) return "-";
  return fmt::format("{:+.0f} %", 100.0 * (outcome.tail_seconds / base.tail_seconds - 1.0));
}

std::string as_table(const std::vector<Variant>& variants, std::vector<std::vector<Outcome>>& outcomes) {
  metrics::ConsoleTable table({"variant", "seconds", "tokens/s", "speed-up", "tail s", "tail change",
                               "preempted", "migrations", "accept len"});
  const Outcome& base = median_of(outcomes.front());
  for (std::size_t v = 0; v < variants.size(); ++v) {
    const Outcome& o = v == 0 ? base : median_of(outcomes[v]);
    table.add_row(
        {variants[v].label, metrics::format_number(o.seconds), fmt::format("{:.0f}", o.tokens_per_second()),
         fmt::format("{:.2f}", o.tokens_per_second() / base.tokens_per_second()),
         fmt::format("{:.1f}", o.tail_seconds), tail_change(o, base), fmt::format("{}", o.engine.preemptions),
         fmt::format("{}", o.dispatch.migrations), fmt::format("{:.2f}", o.accept_length())});
  }
  return table.to_string();
}

// A page and a trace for each variant, and a page of all of them.
Result<void> write_traces(const std::string& folder, const std::vector<Variant>& variants,
                          std::span<const timeline::Timeline> timelines) {
  for (std::size_t v = 0; v < variants.size(); ++v)
    RONDO_TRY(rl::write_timeline(folder, variants[v].name, timelines[v]));
  return timeline::write_page(std::filesystem::path(folder) / "comparison.html", "rondo bench rollout",
                              timelines);
}

}  // namespace

Result<RolloutPlan> plan_bench_rollout(const BenchArgs& args, const rl::Config& config) {
  RolloutPlan plan;
  RONDO_ASSIGN(plan.variants, variants_of(args));
  RONDO_TRY(replay_lengths(config, args.lengths, plan));
  if (args.trace.empty()) return plan;
  std::error_code error;
  std::filesystem::create_directories(args.trace, error);
  if (error || !std::filesystem::is_directory(args.trace, error))
    return fail(Code::kIo, "--trace: cannot create the folder {}: {}", args.trace,
                error ? error.message() : "it is something else");
  return plan;
}

Result<void> bench_rollout(rl::Session& session, const BenchArgs& args, const RolloutPlan& plan,
                           Terminal& terminal) {
  const std::vector<Variant>& variants = plan.variants;
  const rl::DataSection& data = session.config.data;
  RONDO_ASSIGN_CTX(const rl::PromptSet set,
                   rl::load_prompts(data.train_files, data, session.config.model.path, *session.tokenizer,
                                    data::GroundTruth::kOptional),
                   "data.train_files");
  Bench bench{.session = session,
              .args = args,
              .prompts = {},
              .exact_lengths = plan.exact_lengths,
              .prior = plan.prior};
  RONDO_ASSIGN(bench.prompts, first_prompts(session, set));
  if (bench.exact_lengths.empty() && any_learns(variants)) RONDO_TRY(learn_lengths(bench, set));
  std::vector<std::int32_t> true_lengths = plan.exact_lengths;
  std::vector<std::vector<Outcome>> outcomes(variants.size());
  std::vector<timeline::Timeline> timelines(variants.size());
  std::optional<std::uint64_t> digest;
  for (int round = 0; round < args.repeats; ++round) {
    for (std::size_t v = 0; v < variants.size(); ++v) {
      RONDO_ASSIGN(Outcome outcome, run_once(bench, variants[v], true_lengths));
      terminal.print(as_json(session, variants[v], outcome));
      timelines[v] = std::move(outcome.timeline);
      if (variants[v].policy != rollout::Policy::kPartial) {
        if (digest.value_or(outcome.digest) != outcome.digest)
          return fail(Code::kInternal, "{} gave other tokens than a policy before it: this is a bug in rondo",
                      variants[v].name);
        digest = outcome.digest;
        true_lengths = outcome.lengths;
      }
      outcomes[v].push_back(std::move(outcome));
    }
  }
  terminal.print(as_table(variants, outcomes));
  if (args.trace.empty()) return {};
  RONDO_TRY(write_traces(args.trace, variants, timelines));
  terminal.print(fmt::format("timelines: {}/comparison.html\n", args.trace));
  return {};
}

}  // namespace rondo::cli
