#include "cli/bench_rollout.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/checksum.h"
#include "base/text_distance.h"
#include "cli/interrupt.h"
#include "metrics/console.h"
#include "rl/generation.h"
#include "rl/prompts.h"

namespace rondo::cli {
namespace {

struct Variant {
  std::string name;
  rollout::Policy policy = rollout::Policy::kSeer;
  bool spec = false;
};

// One rollout.
struct Outcome {
  double seconds = 0;
  double tail_seconds = 0;
  std::int64_t tokens = 0;
  batch::Planner::Stats engine;
  rollout::Dispatcher::Stats dispatch;
  std::uint64_t digest = 0;  // of all tokens
  std::vector<std::int32_t> lengths;

  double tokens_per_second() const { return static_cast<double>(tokens) / seconds; }
  // `partial` leaves some out.
  std::int64_t num_responses() const { return std::ssize(lengths) - std::ranges::count(lengths, 0); }
  // Tokens per sequence and step.
  double accept_length() const {
    return static_cast<double>(tokens) / static_cast<double>(tokens - engine.accepted_tokens);
  }
};

Result<Variant> parse_variant(const std::string& name) {
  constexpr std::string_view kSpec = "+spec";
  Variant variant{.name = name};
  variant.spec = name.ends_with(kSpec);
  const std::string policy = variant.spec ? name.substr(0, name.size() - kSpec.size()) : name;
  std::vector<std::string> names;
  for (const auto& [value, text] : enum_names(rollout::Policy{})) {
    if (policy == text) {
      variant.policy = value;
      return variant;
    }
    names.emplace_back(text);
  }
  return fail(Code::kInvalidArgument, "--policies: unknown policy '{}'; the nearest is '{}'", policy,
              nearest_name(policy, names));
}

// As many prompts as a step has, the first of the data.
Result<std::vector<const rl::Prompt*>> first_prompts(const rl::Session& session, const rl::PromptSet& set) {
  const auto wanted = static_cast<std::size_t>(session.config.data.train_batch_size);
  if (set.prompts.size() < wanted)
    return fail(Code::kInvalidArgument, "data.train_files has {} prompts, data.train_batch_size asks for {}",
                set.prompts.size(), wanted);
  std::vector<const rl::Prompt*> prompts;
  for (std::size_t i = 0; i < wanted; ++i) prompts.push_back(&set.prompts[i]);
  return prompts;
}

Result<Outcome> run_once(rl::Session& session, const Variant& variant,
                         std::span<const rl::Prompt* const> prompts, std::span<const std::int32_t> lengths) {
  session.inference.reset();
  rl::Config config = session.config;
  config.rollout.schedule.policy = variant.policy;
  config.rollout.spec.enabled = variant.spec;
  RONDO_ASSIGN(session.inference,
               rl::InferencePool::create(config, *session.model, *session.tokenizer, session.context));
  rl::GenerationStats stats;
  const bool partial = variant.policy == rollout::Policy::kPartial;
  const auto wanted = static_cast<double>(prompts.size()) / config.rollout.schedule.over_issue;
  RONDO_ASSIGN(const auto groups,
               rl::generate(session,
                            {.prompts = prompts,
                             .sampling = &config.rollout.sampling,
                             .purpose = RngPurpose::kRollout,
                             .step = 1,
                             .true_lengths = lengths,
                             .goal_groups =
                                 partial ? std::max<std::int64_t>(1, static_cast<std::int64_t>(wanted)) : 0},
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
  outcome.dispatch = stats.dispatch;
  outcome.engine = session.inference->engine_stats();
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
                        {"responses", o.num_responses()},
                        {"tokens", o.tokens},
                        {"seconds", o.seconds},
                        {"tokens_per_second", o.tokens_per_second()},
                        {"tail_seconds", o.tail_seconds},
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

std::string as_table(const std::vector<Variant>& variants, std::vector<std::vector<Outcome>>& outcomes) {
  metrics::ConsoleTable table({"variant", "seconds", "tokens/s", "speed-up", "tail s", "tail change",
                               "preempted", "migrations", "accept len"});
  const Outcome base = median_of(outcomes.front());
  for (std::size_t v = 0; v < variants.size(); ++v) {
    const Outcome& o = median_of(outcomes[v]);
    table.add_row({variants[v].name, fmt::format("{:.1f}", o.seconds),
                   fmt::format("{:.0f}", o.tokens_per_second()),
                   fmt::format("{:.2f}", o.tokens_per_second() / base.tokens_per_second()),
                   fmt::format("{:.1f}", o.tail_seconds),
                   fmt::format("{:+.0f} %", 100.0 * (o.tail_seconds / base.tail_seconds - 1.0)),
                   fmt::format("{}", o.engine.preemptions), fmt::format("{}", o.dispatch.migrations),
                   fmt::format("{:.2f}", o.accept_length())});
  }
  return table.to_string();
}

}  // namespace

Result<void> bench_rollout(rl::Session& session, const std::vector<std::string>& names, int repeats,
                           Terminal& terminal) {
  std::vector<Variant> variants;
  for (const std::string& name : names) {
    RONDO_ASSIGN(Variant variant, parse_variant(name));
    variants.push_back(std::move(variant));
  }
  const rl::DataSection& data = session.config.data;
  RONDO_ASSIGN_CTX(const rl::PromptSet set,
                   rl::load_prompts(data.train_files, data, session.config.model.path, *session.tokenizer,
                                    data::GroundTruth::kOptional),
                   "data.train_files");
  RONDO_ASSIGN(const auto prompts, first_prompts(session, set));
  std::vector<std::vector<Outcome>> outcomes(variants.size());
  std::optional<Outcome> first;
  for (int round = 0; round < repeats; ++round) {
    for (std::size_t v = 0; v < variants.size(); ++v) {
      const std::vector<std::int32_t> lengths = first ? first->lengths : std::vector<std::int32_t>{};
      RONDO_ASSIGN(Outcome outcome, run_once(session, variants[v], prompts, lengths));
      terminal.print(as_json(session, variants[v], outcome));
      if (!first) first = outcome;
      if (variants[v].policy != rollout::Policy::kPartial && outcome.digest != first->digest)
        return fail(Code::kInternal, "{} gave other tokens than {}: this is a bug in rondo", variants[v].name,
                    variants.front().name);
      outcomes[v].push_back(std::move(outcome));
    }
  }
  terminal.print(as_table(variants, outcomes));
  return {};
}

}  // namespace rondo::cli
