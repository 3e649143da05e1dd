// Rollout dumps: every response of a step, as <folder>/step_<N>.jsonl.
//
// One row a line, one line a response, in the order written (prompts in issue order, samples by index):
//
//   {"step": 3, "prompt_index": 17, "ordinal": 0, "sample": 2, "policy_version": 3, "data_source": "…",
//    "input": "prompt text", "output": "response text", "gts": "ground truth",
//    "score": 1.0, "advantage": 0.5, "finish_reason": "stop",
//    "prompt_tokens": [1, …], "response_tokens": [36, …], "log_probs": [-0.25, …]}
//
// input, output, gts, score and step are verl's names. Numbers are decimal with enough digits (9 for fp32, 17
// for fp64) to give the same bits when read back, as fp64 rounded to fp32 too; infinities and NaN, for which
// JSON has no numbers, are the strings "Infinity", "-Infinity" and "NaN". Texts are UTF-8; other bytes become
// U+FFFD.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/id.h"
#include "base/status.h"

namespace rondo::data {

/// One response with where it came from and what it earned.
struct RolloutRow {
  std::int64_t step = 0;          // issue step
  std::int64_t prompt_index = 0;  // PromptRow::index
  std::int64_t ordinal = 0;       // the prompt's place in the step's issue order
  std::int64_t sample = 0;        // index in its group
  PolicyVersion policy_version;   // that sampled it
  std::string data_source;
  std::string prompt_text;
  std::string response_text;
  std::string ground_truth;
  double score = 0;
  float advantage = 0;
  std::string finish_reason;
  std::vector<Token> prompt_tokens;
  std::vector<Token> response_tokens;
  std::vector<float> log_probs;  // one for each response token
};

/// The dump of `step` >= 0 in `folder`.
std::filesystem::path rollout_path(const std::filesystem::path& folder, std::int64_t step);

/// Writes the dump of one step, which appears whole or not at all: rows go to a sibling file that `finish`
/// flushes and renames. A writer dropped before that removes it; a killed process leaves it, and the next
/// writer of the step overwrites it. Replaces an older dump of the step. Holds one row in memory. One owner
/// thread. After an error only destruction is allowed.
class RolloutWriter final {
 public:
  /// `folder` must exist.
  static Result<RolloutWriter> create(const std::filesystem::path& folder, std::int64_t step);
  RolloutWriter(RolloutWriter&& other) noexcept;
  RolloutWriter& operator=(RolloutWriter&&) = delete;
  ~RolloutWriter();

  /// `row.step` is the writer's step, and row.log_probs has the size of row.response_tokens.
  Result<void> append(const RolloutRow& row);
  /// Publishes the dump. The last call.
  Result<void> finish();

 private:
  RolloutWriter(FileWriter file, std::filesystem::path path, std::int64_t step)
      : file_(std::move(file)), path_(std::move(path)), step_(step) {}

  std::optional<FileWriter> file_;  // empty once published or moved from
  std::filesystem::path path_;
  std::int64_t step_;
};

/// Reads a dump back, bit for bit. kDataLoss or kInvalidArgument with file and line if it is damaged.
Result<std::vector<RolloutRow>> read_rollouts(const std::filesystem::path& path);

/// The same for the bytes of a dump; `name` stands for the file in messages.
Result<std::vector<RolloutRow>> parse_rollouts(std::string_view bytes, const std::string& name);

/// Deletes the dumps of all steps >= `first_step`, and unfinished files of any step: what a resumed run does
/// again. Returns how many dumps are gone. A missing folder holds none.
Result<std::int64_t> remove_rollouts_from(const std::filesystem::path& folder, std::int64_t first_step);

}  // namespace rondo::data
