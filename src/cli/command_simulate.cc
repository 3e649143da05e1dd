#include <fmt/core.h>

#include <thread>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "sim/comparison.h"
#include "sim/report.h"
#include "sim/workload.h"

namespace rondo::cli {
namespace {

int num_threads(int configured) {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return configured > 0 ? configured : std::max(1, cores);
}

Result<void> run(const SimulateArgs& args, Terminal& terminal) {
  RONDO_ASSIGN(const sim::Workload workload, sim::load_workload(args.config.file, args.config.overrides));
  if (args.show) {
    terminal.print(sim::annotated_toml(workload));
    return {};
  }
  RONDO_ASSIGN(const auto variants, sim::variants_of(workload));
  RONDO_ASSIGN(const auto outcomes, sim::compare(variants, args.seeds, num_threads(args.threads)));
  if (args.json) {
    terminal.print(sim::outcomes_json(outcomes));
    return {};
  }
  if (!workload.name.empty()) terminal.print(workload.name + "\n");
  if (args.per_seed) terminal.print(sim::seed_table(outcomes) + "\n");
  terminal.print(sim::comparison_table(workload.compare, outcomes));
  return {};
}

}  // namespace

int simulate(const SimulateArgs& args) {
  Terminal terminal;
  const auto result = run(args, terminal);
  return result ? 0 : report_error(result.error());
}

}  // namespace rondo::cli
