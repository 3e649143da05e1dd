// TinyRun: a scratch folder with a tiny model and a few prompts, and training runs on them. For this module's
// tests.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "rl/config.h"
#include "rl/sync_loop.h"

namespace rondo::rl {

/// A flag that nobody sets.
const std::atomic<bool>& not_interrupted();

/// Makes the folder and removes it. A random model now and then writes a digit, which earns the format score
/// of last_number: so some groups of responses have variance and some have none.
class TinyRun final {
 public:
  TinyRun();
  ~TinyRun();
  TinyRun(const TinyRun&) = delete;
  TinyRun& operator=(const TinyRun&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path model() const { return folder_ / "model"; }
  /// Writes a file into the folder and returns its path.
  std::string write(std::string_view name, std::string_view text) const;
  /// Four steps of three groups of four, on prompts that span KV blocks; then the overrides. Aborts if they
  /// are wrong.
  Config config(const std::string& run_name, const std::vector<std::string>& overrides = {}) const;

 private:
  std::filesystem::path folder_;
};

/// Runs the loop to its end without an observer.
Result<LoopSummary> train(const Config& config, const std::atomic<bool>& interrupted = not_interrupted());

/// Relative path -> bytes of every file below `folder`.
std::map<std::string, std::string> files_below(const std::filesystem::path& folder);

/// Everything that two runs of the same configuration must agree on, bit for bit.
struct Outcome {
  std::vector<std::string> metrics;  // the deterministic part of each line
  std::map<std::string, std::string> rollouts;
  std::map<std::string, std::string> model;  // of the newest checkpoint, with the trainer's state
};

/// Reads it from a run folder.
Outcome outcome_of(const std::filesystem::path& run_dir);

/// The value of a metric in a line of a log; nothing if the line lacks it.
std::optional<double> metric_of(std::string_view line, std::string_view name);

}  // namespace rondo::rl
