#include "rl/tiny_run.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/check.h"
#include "base/file.h"
#include "metrics/json_row.h"
#include "testing/tiny_model.h"

namespace rondo::rl {
namespace {

namespace fs = std::filesystem;

// From a few tokens to more than one KV block.
std::string prompt_rows(int count) {
  std::string rows;
  for (int i = 0; i < count; ++i)
    rows += nlohmann::json{{"prompt", std::string(static_cast<std::size_t>(3 + 24 * i), 'a' + char(i))},
                           {"data_source", i % 2 == 0 ? "even" : "odd"},
                           {"label", std::to_string(i)}}
                .dump() +
            "\n";
  return rows;
}

const std::vector<std::string> kOverrides = {"data.train_batch_size=3",
                                             "data.max_prompt_length=128",
                                             "data.max_response_length=16",
                                             "rollout.n=4",
                                             "reward.function=last_number",
                                             "reward.format_score=0.25",
                                             "engine.kv_memory=1MiB",
                                             "actor.optim.lr=1e-3",
                                             "trainer.total_steps=4",
                                             "trainer.test_freq=2",
                                             "trainer.threads=1"};

}  // namespace

const std::atomic<bool>& not_interrupted() {
  static const std::atomic<bool> flag{false};
  return flag;
}

TinyRun::TinyRun() {
  std::string pattern = ::testing::TempDir() + "/rondo_rl_XXXXXX";
  folder_ = ::mkdtemp(pattern.data());
  const auto written = testing::write_tiny_model_folder(model(), 1);
  RONDO_CHECK(written.has_value());
  write("train.jsonl", prompt_rows(6));
  write("val.jsonl", prompt_rows(2));
}

TinyRun::~TinyRun() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::string TinyRun::write(std::string_view name, std::string_view text) const {
  const fs::path path = folder_ / name;
  const auto written = write_file_durable(path, text);
  RONDO_CHECK(written.has_value());
  return path.string();
}

Config TinyRun::config(const std::string& run_name, const std::vector<std::string>& overrides) const {
  std::vector<std::string> all = {"model.path=" + model().string(),
                                  "data.train_files=" + (folder_ / "train.jsonl").string(),
                                  "data.val_files=" + (folder_ / "val.jsonl").string(),
                                  "trainer.run_dir=" + (folder_ / run_name).string()};
  all.insert(all.end(), kOverrides.begin(), kOverrides.end());
  all.insert(all.end(), overrides.begin(), overrides.end());
  auto config = load_config("", all);
  if (!config) internal::check_failed(__FILE__, __LINE__, "load_config", config.error().message());
  return *std::move(config);
}

Result<LoopSummary> train(const Config& config, const std::atomic<bool>& interrupted) {
  const SteadyClock clock;
  const LoopObserver silent{
      .message = [](std::string_view) {},
      .step_done = [](std::int64_t, std::int64_t, const metrics::StepRecord&, std::optional<double>) {},
      .progress = [](std::string_view, std::int64_t, std::int64_t) {}};
  RONDO_ASSIGN(const auto loop, SyncLoop::create(config, clock, silent, interrupted));
  return loop->run();
}

std::map<std::string, std::string> files_below(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      files[fs::relative(entry.path(), folder).string()] = read_file(entry.path()).value();
  return files;
}

Outcome outcome_of(const fs::path& run_dir) {
  Outcome outcome;
  std::istringstream lines(read_file(run_dir / "metrics.jsonl").value());
  for (std::string line; std::getline(lines, line);)
    outcome.metrics.push_back(metrics::deterministic_part(line).value());
  outcome.rollouts = files_below(run_dir / "rollouts");
  std::string newest = read_file(run_dir / "checkpoints" / "latest").value();
  newest.pop_back();
  outcome.model = files_below(run_dir / "checkpoints" / newest);
  return outcome;
}

std::optional<double> metric_of(std::string_view line, std::string_view name) {
  const auto row = nlohmann::json::parse(line);
  const auto found = row.find(name);
  if (found == row.end()) return std::nullopt;
  return found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

}  // namespace rondo::rl
