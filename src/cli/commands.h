// The subcommands of `rondo`. Each returns the process's exit code and prints its own errors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "rl/config.h"

namespace rondo::cli {

/// A config file (may be empty) and `section.key=value` overrides.
struct ConfigArgs {
  std::string file;
  std::vector<std::string> overrides;
};

/// `rondo train CONFIG [key=value …]`.
struct TrainArgs {
  ConfigArgs config;
  std::string fault;  // "name:count", for tests of resuming
};
int train(const TrainArgs& args);

/// `rondo generate CONFIG --prompt TEXT …`: responses to prompts from the command line or a file, as text or
/// jsonl.
struct GenerateArgs {
  ConfigArgs config;
  std::vector<std::string> prompts;  // user messages, or raw text with `raw`
  std::string file;                  // jsonl rows, as for training
  bool raw = false;                  // no chat template
  bool json = false;                 // one JSON object per response, with tokens and log-probabilities
};
int generate(const GenerateArgs& args);

/// `rondo eval CONFIG`: mean score over data.val_files.
struct EvalArgs {
  ConfigArgs config;
  bool json = false;
};
int eval(const EvalArgs& args);

/// `rondo config [CONFIG] [key=value …]`: the resolved tree with docs, or the reference page.
struct ShowConfigArgs {
  ConfigArgs config;
  bool markdown = false;
};
int show_config(const ShowConfigArgs& args);

/// `rondo bench WHAT`, one JSON line for each measurement. decode, prefill and train: tokens per second,
/// shares of memory bandwidth and of peak FLOP/s. step: seconds of a whole GRPO step by phase. rollout: one
/// step's rollout under several policies. spec: decoding with speculation beside without. limits: the
/// machine's own, for which no model is loaded.
struct BenchArgs {
  std::string what;
  std::vector<std::string> given;  // names of the options below that the command line has
  ConfigArgs config;
  std::string prompts;  // jsonl of {"tokens": [id, …]}; empty: random tokens
  std::vector<int> batch = {1, 8, 32};
  int prompt_tokens = 64;
  int new_tokens = 64;
  int repeats = 3;
  // Of rollout.
  std::vector<std::string> policies;  // empty: group_round_robin,seer,seer_plus,seer_plus+spec
  bool ablation = false;              // these policies, step by step
  std::string lengths;  // what `simulate` takes as a trace, to run to its lengths; empty: natural ones
  std::string trace;    // folder for timelines and input logs; empty: none
};
int bench(const BenchArgs& args);

/// `rondo profile CONFIG`: measures the time of decoding steps, from which draft lengths are chosen, keeps
/// it, and prints it.
int profile(const ConfigArgs& args);

/// `rondo simulate [WORKLOAD] [key=value …]`: a rollout on a cluster that is not there.
struct SimulateArgs {
  ConfigArgs config;  // a sim::Workload
  int seeds = 1;
  int threads = 0;  // 0: all
  bool json = false;
  bool per_seed = false;
  bool show = false;               // print the settings instead
  std::vector<std::string> sweep;  // "key=a,b,c"
  std::string html;                // file; empty: none
  std::string trace;               // file, for Perfetto
};
int simulate(const SimulateArgs& args);

/// The config of a command that generates: as the file and overrides say, the profile's folder filled in.
Result<rl::Config> load_for_generation(const ConfigArgs& args);

}  // namespace rondo::cli
