// The `rondo` binary: parses the command line and hands over to one subcommand.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/text_distance.h"
#include "cli/commands.h"

namespace {

using rondo::cli::ConfigArgs;

constexpr int kBadUsage = 2;  // as for any other bad input

// The file may be left out where the overrides say everything.
void add_config(CLI::App& command, ConfigArgs& args) {
  command
      .add_option("config", args.overrides,
                  "TOML file (see `rondo config`), then section.key=value …, applied in order")
      ->option_text("[FILE] [key=value …]");
  command.callback([&args] {
    if (args.overrides.empty() || args.overrides.front().find('=') != std::string::npos) return;
    args.file = args.overrides.front();
    args.overrides.erase(args.overrides.begin());
  });
}

// CLI11's own check tells the range as 0 to 1.8e308, in full.
CLI::Validator at_least_one() {
  return {[](const std::string& text) {
            int value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool good = error == std::errc() && end == text.data() + text.size() && value >= 1;
            return good ? std::string() : fmt::format("{} is no whole number of at least 1", text);
          },
          "INT >= 1"};
}

// Whether the first word is no subcommand of `app`, which is then said; CLI11 would only miss one.
bool is_unknown_subcommand(const CLI::App& app, std::string_view word) {
  if (word.empty() || word.front() == '-') return false;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), word) != names.end()) return false;
  fmt::print(stderr, "rondo: unknown subcommand '{}'; the nearest is '{}' (all: rondo --help)\n", word,
             rondo::nearest_name(word, names));
  return true;
}

int run(int argc, char** argv) {
  CLI::App app{
      "rondo: reinforcement-learning post-training of language models.\n"
      "Results depend on configuration, data and seed, never on the schedule.",
      "rondo"};
  app.require_subcommand(1);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("rondo: {}\n(options and what they mean: rondo --help, rondo COMMAND --help)\n",
                       error.what());
  });

  rondo::cli::TrainArgs train;
  CLI::App* train_command =
      app.add_subcommand("train", "Train a model (GRPO); goes on where an earlier run stopped");
  add_config(*train_command, train.config);
  train_command->add_option("--fault", train.fault,
                            "Kill the process at a fault point, name:count (for tests)");

  rondo::cli::GenerateArgs generate;
  CLI::App* generate_command = app.add_subcommand("generate", "Generate responses to prompts");
  add_config(*generate_command, generate.config);
  generate_command->add_option("--prompt", generate.prompts, "A user message; may be repeated")
      ->allow_extra_args(false);
  generate_command->add_option("--file", generate.file, "jsonl file of prompts");
  generate_command->add_flag("--raw", generate.raw, "Take --prompt as raw text, without the chat template");
  generate_command->add_flag("--json", generate.json,
                             "One JSON object per response, with tokens and log-probabilities");

  rondo::cli::EvalArgs eval;
  CLI::App* eval_command = app.add_subcommand("eval", "Mean score over data.val_files");
  add_config(*eval_command, eval.config);
  eval_command->add_flag("--json", eval.json, "Print JSON");

  rondo::cli::ShowConfigArgs show;
  CLI::App* config_command =
      app.add_subcommand("config", "Print all settings with values, docs and defaults");
  add_config(*config_command, show.config);
  config_command->add_flag("--markdown", show.markdown, "Print the reference page instead");

  ConfigArgs profile;
  CLI::App* profile_command = app.add_subcommand(
      "profile", "Measure the time of decoding steps, from which draft lengths are chosen");
  add_config(*profile_command, profile);

  rondo::cli::SimulateArgs simulate;
  CLI::App* simulate_command = app.add_subcommand(
      "simulate", "Simulate rollouts on a cluster: schedules, chunk lengths, memory, before renting it");
  add_config(*simulate_command, simulate.config);
  simulate_command->add_option("--seeds", simulate.seeds, "Repetitions, each with lengths of its own")
      ->check(at_least_one());
  simulate_command->add_option("--threads", simulate.threads, "Simulations at a time; 0: one per core")
      ->check(CLI::NonNegativeNumber);
  simulate_command->add_flag("--per-seed", simulate.per_seed, "Print each repetition, too");
  simulate_command
      ->add_option("--sweep", simulate.sweep,
                   "key=a,b,c: repeat it for each value; given twice, for each combination")
      ->take_all()
      ->allow_extra_args(false);
  simulate_command->add_option("--html", simulate.html,
                               "Write a page: the first seed of each variant over time, or a sweep's chart");
  simulate_command->add_option("--trace", simulate.trace,
                               "Write the first seed of each variant for ui.perfetto.dev");
  simulate_command->add_flag("--json", simulate.json, "One JSON object per variant and repetition");
  simulate_command->add_flag("--show", simulate.show, "Print all settings with values and docs instead");

  rondo::cli::BenchArgs bench;
  CLI::App* bench_command = app.add_subcommand("bench", "Measure speed; one JSON line per measurement");
  bench_command
      ->add_option(
          "what", bench.what,
          "decode, prefill, train, step (a whole GRPO step on data.train_files), rollout (under several "
          "policies), spec (decoding with speculation beside without) or limits (of the machine)")
      ->required()
      ->check(CLI::IsMember({"decode", "prefill", "train", "step", "rollout", "spec", "limits"}));
  add_config(*bench_command, bench.config);
  bench_command->add_option("--batch", bench.batch, "Batch sizes (decode, spec), or groups (train)")
      ->delimiter(',')
      ->allow_extra_args(false);
  bench_command->add_option("--prompts", bench.prompts,
                            "jsonl of {\"tokens\": [id, …]}, the prompts to take; else random ones");
  bench_command->add_option("--prompt-tokens", bench.prompt_tokens, "Tokens of each prompt")
      ->check(at_least_one());
  bench_command->add_option("--new-tokens", bench.new_tokens, "Tokens generated for each")
      ->check(at_least_one());
  bench_command
      ->add_option("--repeats", bench.repeats, "Measurements of each, of which the median counts; or steps")
      ->check(at_least_one());

  CLI::Option* policies =
      bench_command
          ->add_option("--policies", bench.policies,
                       "rollout: values of rollout.policy in turn, \"+spec\" behind one for speculation")
          ->delimiter(',')
          ->allow_extra_args(false);
  bench_command
      ->add_flag("--ablation", bench.ablation,
                 "rollout: instead of --policies, the undivided base and what each part of rondo adds to it")
      ->excludes(policies);
  bench_command->add_option(
      "--lengths", bench.lengths,
      "rollout: jsonl of {\"prompt_id\", \"sample\", \"length\"}, or a rollout dump of rondo, verl or slime; "
      "responses run to exactly these lengths");
  bench_command->add_option("--trace", bench.trace,
                            "rollout: folder for what ran when, per policy and side by side "
                            "(comparison.html), and for the scheduler's inputs");

  if (argc > 1 && is_unknown_subcommand(app, argv[1])) return kBadUsage;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kBadUsage;
  }
  if (*train_command) return rondo::cli::train(train);
  if (*generate_command) return rondo::cli::generate(generate);
  if (*eval_command) return rondo::cli::eval(eval);
  if (*config_command) return rondo::cli::show_config(show);
  if (*simulate_command) return rondo::cli::simulate(simulate);
  if (*profile_command) return rondo::cli::profile(profile);
  return rondo::cli::bench(bench);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file over `ulimit -f` is then an error of its write, with a message
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("rondo: out of memory; lower engine.kv_memory or use a smaller model\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rondo: unexpected failure: %s\n", error.what());
  }
  return 1;
}
