// Scores a prompt dataset whose "response" stands in extra_info.response, for the oracle test: one line a row
// with the score, 17 digits.
//
// usage: reward_probe FUNCTION FORMAT_SCORE FILE.jsonl
#include <cstdio>
#include <cstdlib>
#include <string>

#include "data/prompt_row.h"
#include "reward/reward.h"

namespace {

using rondo::reward::Function;

Function function_named(const std::string& name) {
  for (const auto& [function, text] : enum_names(Function{})) {
    if (name == text) return function;
  }
  std::fprintf(stderr, "unknown function %s\n", name.c_str());
  std::exit(2);
}

rondo::Result<void> score_file(const rondo::reward::Config& config, const std::string& file) {
  RONDO_ASSIGN(const auto reward, rondo::reward::make_reward(config));
  // The response is read as the prompt, so that the text passes through the dataset reader.
  RONDO_ASSIGN(const auto rows, rondo::data::read_prompts({file}, {.prompt_key = "extra_info.response"}));
  for (const auto& row : rows) {
    RONDO_ASSIGN(const auto result, reward({.data_source = row.data_source,
                                            .response = row.text,
                                            .ground_truth = row.ground_truth,
                                            .extra_info_json = row.extra_info_json}));
    std::printf("%.17g\n", result.score);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: reward_probe FUNCTION FORMAT_SCORE FILE.jsonl\n");
    return 2;
  }
  const auto done =
      score_file({.function = function_named(argv[1]), .format_score = std::atof(argv[2])}, argv[3]);
  if (done) return 0;
  std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return 1;
}
