// What the end-to-end tests need of the program's own code: a tiny model, its fault points, and the part of a
// metrics log that two runs must agree on.
//
//   cli_probe model FOLDER SEED      writes a tiny model folder
//   cli_probe fault-points           prints their names, one a line
//   cli_probe deterministic FILE     prints the deterministic part of each line of a metrics.jsonl
#include <fmt/format.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "base/fault_point.h"
#include "base/file.h"
#include "metrics/json_row.h"
#include "testing/tiny_model.h"

namespace {

using rondo::Result;

Result<void> print_deterministic(const std::string& path) {
  RONDO_ASSIGN(const std::string text, rondo::read_file(path));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    RONDO_ASSIGN(const std::string part, rondo::metrics::deterministic_part(line));
    fmt::print("{}\n", part);
  }
  return {};
}

Result<void> run(const std::vector<std::string>& args) {
  if (args.size() == 3 && args[0] == "model")
    return rondo::testing::write_tiny_model_folder(args[1], static_cast<std::uint32_t>(std::stoul(args[2])));
  if (args.size() == 1 && args[0] == "fault-points") {
    for (const std::string& name : rondo::fault::points()) fmt::print("{}\n", name);
    return {};
  }
  if (args.size() == 2 && args[0] == "deterministic") return print_deterministic(args[1]);
  return rondo::fail(rondo::Code::kInvalidArgument, "see the head of cli_probe.cc for the arguments");
}

}  // namespace

int main(int argc, char** argv) {
  const auto result = run({argv + 1, argv + argc});
  if (result) return EXIT_SUCCESS;
  fmt::print(stderr, "cli_probe: {}\n", result.error().to_string());
  return EXIT_FAILURE;
}
