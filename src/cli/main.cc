// The `rondo` binary: parses the command line and hands over to one subcommand.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <exception>
#include <limits>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/text_distance.h"
#include "cli/bench_options.h"
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
CLI::Validator at_least(int least) {
  return {[least](const std::string& text) {
            int value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool good = error == std::errc() && end == text.data() + text.size() && value >= least;
            return good ? std::string()
                        : fmt::format("{} is no whole number from {} to {}", text, least,
                                      std::numeric_limits<int>::max());
          },
          fmt::format("INT >= {}", least)};
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

CLI::App* add_train(CLI::App& app, rondo::cli::TrainArgs& args) {
  CLI::App* command =
      app.add_subcommand("train", "Train a model (GRPO); goes on where an earlier run stopped");
  add_config(*command, args.config);
  command->add_option("--fault", args.fault, "Kill the process at a fault point, name:count (for tests)");
  return command;
}

CLI::App* add_generate(CLI::App& app, rondo::cli::GenerateArgs& args) {
  CLI::App* command = app.add_subcommand("generate", "Generate responses to prompts");
  add_config(*command, args.config);
  command->add_option("--prompt", args.prompts, "A user message; may be repeated")->allow_extra_args(false);
  command->add_option("--file", args.file, "jsonl file of prompts");
  command->add_flag("--raw", args.raw, "Take --prompt as raw text, without the chat template");
  command->add_flag("--json", args.json, "One JSON object per response, with tokens and log-probabilities");
  return command;
}

CLI::App* add_eval(CLI::App& app, rondo::cli::EvalArgs& args) {
  CLI::App* command = app.add_subcommand("eval", "Mean score over data.val_files");
  add_config(*command, args.config);
  command->add_flag("--json", args.json, "Print JSON");
  return command;
}

CLI::App* add_show_config(CLI::App& app, rondo::cli::ShowConfigArgs& args) {
  CLI::App* command = app.add_subcommand("config", "Print all settings with values, docs and defaults");
  add_config(*command, args.config);
  command->add_flag("--markdown", args.markdown, "Print the reference page instead");
  return command;
}

CLI::App* add_profile(CLI::App& app, ConfigArgs& args) {
  CLI::App* command = app.add_subcommand(
      "profile", "Measure the time of decoding steps, from which draft lengths are chosen");
  add_config(*command, args);
  return command;
}

CLI::App* add_simulate(CLI::App& app, rondo::cli::SimulateArgs& args) {
  CLI::App* command = app.add_subcommand(
      "simulate", "Simulate rollouts on a cluster: schedules, chunk lengths, memory, before renting it");
  add_config(*command, args.config);
  command->add_option("--seeds", args.seeds, "Repetitions, each with lengths of its own")->check(at_least(1));
  command->add_option("--threads", args.threads, "Simulations at a time; 0: one per core")
      ->check(at_least(0));
  command->add_flag("--per-seed", args.per_seed, "Print each repetition, too");
  command
      ->add_option("--sweep", args.sweep,
                   "key=a,b,c: repeat it for each value; given twice, for each combination")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--html", args.html,
                      "Write a page: the first seed of each variant over time, or a sweep's chart");
  command->add_option("--trace", args.trace, "Write the first seed of each variant for ui.perfetto.dev");
  command->add_flag("--json", args.json, "One JSON object per variant and repetition");
  command->add_flag("--show", args.show, "Print all settings with values and docs instead");
  return command;
}

// Names, as "--batch", of the options that the command line gave to a command.
std::vector<std::string> given_options(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    if (option->count() > 0 && !option->get_positional()) names.push_back(option->get_name());
  return names;
}

// The help of an option that not all benchmarks heed.
std::string for_some(std::string_view option, std::string_view text) {
  return fmt::format("{}: {}", rondo::cli::heeded_by(option), text);
}

CLI::App* add_bench(CLI::App& app, rondo::cli::BenchArgs& args) {
  CLI::App* command = app.add_subcommand("bench", "Measure speed; one JSON line per measurement");
  command
      ->add_option(
          "what", args.what,
          "decode, prefill, train, step (a whole GRPO step on data.train_files), rollout (under several "
          "policies), spec (decoding with speculation beside without) or limits (of the machine)")
      ->required()
      ->check(CLI::IsMember(rondo::cli::benchmarks()));
  add_config(*command, args.config);
  const auto add = [&](const std::string& name, auto& value, std::string_view text) {
    return command->add_option(name, value, for_some(name, text));
  };
  add("--batch", args.batch, "batch sizes (train: numbers of groups)")
      ->delimiter(',')
      ->check(at_least(1))
      ->allow_extra_args(false);
  add("--prompts", args.prompts, "jsonl of {\"tokens\": [id, …]}, the prompts to take; else random ones");
  add("--prompt-tokens", args.prompt_tokens, "tokens of each prompt")->check(at_least(1));
  add("--new-tokens", args.new_tokens, "tokens generated for each")->check(at_least(1));
  add("--repeats", args.repeats, "measurements of each, of which the median counts (step: steps)")
      ->check(at_least(1));
  CLI::Option* policies = add("--policies", args.policies,
                              "values of rollout.policy in turn, \"+spec\" behind one for speculation "
                              "(group_round_robin,seer,seer_plus,seer_plus+spec)")
                              ->delimiter(',')
                              ->allow_extra_args(false);
  command
      ->add_flag("--ablation", args.ablation,
                 for_some("--ablation",
                          "instead of --policies, the undivided base and what each part of rondo adds to it"))
      ->excludes(policies);
  add("--lengths", args.lengths,
      "jsonl of {\"prompt_id\", \"sample\", \"length\"}, or a rollout dump of rondo, verl or slime; "
      "responses run to exactly these lengths, and what follows the prompts of a step teaches seer_plus as "
      "earlier steps would");
  add("--trace", args.trace,
      "folder for what ran when, per policy and side by side (comparison.html), and for the scheduler's "
      "inputs");
  return command;
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
  const CLI::App* train_command = add_train(app, train);
  rondo::cli::GenerateArgs generate;
  const CLI::App* generate_command = add_generate(app, generate);
  rondo::cli::EvalArgs eval;
  const CLI::App* eval_command = add_eval(app, eval);
  rondo::cli::ShowConfigArgs show;
  const CLI::App* config_command = add_show_config(app, show);
  ConfigArgs profile;
  const CLI::App* profile_command = add_profile(app, profile);
  rondo::cli::SimulateArgs simulate;
  const CLI::App* simulate_command = add_simulate(app, simulate);
  rondo::cli::BenchArgs bench;
  const CLI::App* bench_command = add_bench(app, bench);

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
  bench.given = given_options(*bench_command);
  return rondo::cli::bench(bench);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file over `ulimit -f` is then an error of its write, with a message
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("rondo: out of memory; lower engine.kv_memory or use a smaller model\n", stderr);
  } catch (const std::system_error& error) {  // of starting a thread: files report errors as values
    std::fprintf(
        stderr,
        "rondo: %s; if these are too many threads, lower trainer.threads and rollout.instances, or raise the "
        "user's limits\n",
        error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rondo: unexpected failure: %s\n", error.what());
  }
  return 1;
}
