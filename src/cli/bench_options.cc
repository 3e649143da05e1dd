#include "cli/bench_options.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"

namespace rondo::cli {
namespace {

struct Option {
  std::string name;
  std::vector<std::string> heeded_by;
};

const std::vector<Option>& options() {
  static const std::vector<Option> kOptions = {
      {"--batch", {"decode", "prefill", "train", "spec"}},
      {"--prompts", {"decode", "prefill", "train"}},
      {"--prompt-tokens", {"decode", "prefill", "train"}},
      {"--new-tokens", {"decode", "train", "spec"}},
      {"--policies", {"rollout"}},
      {"--ablation", {"rollout"}},
      {"--lengths", {"rollout"}},
      {"--trace", {"rollout"}},
      {"--repeats", {"decode", "prefill", "train", "step", "rollout", "spec"}},
  };
  return kOptions;
}

}  // namespace

const std::vector<std::string>& benchmarks() {
  static const std::vector<std::string> kBenchmarks = {"decode",  "prefill", "train", "step",
                                                       "rollout", "spec",    "limits"};
  return kBenchmarks;
}

std::vector<std::string> options_of(std::string_view what) {
  std::vector<std::string> names;
  for (const Option& option : options())
    if (std::find(option.heeded_by.begin(), option.heeded_by.end(), what) != option.heeded_by.end())
      names.push_back(option.name);
  return names;
}

std::string heeded_by(std::string_view name) {
  const auto found = std::find_if(options().begin(), options().end(),
                                  [&](const Option& option) { return option.name == name; });
  RONDO_CHECK(found != options().end());
  return fmt::format("{}", fmt::join(found->heeded_by, ", "));
}

}  // namespace rondo::cli
