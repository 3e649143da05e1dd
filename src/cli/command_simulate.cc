#include <fmt/core.h>

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "rl/session.h"
#include "sim/comparison.h"
#include "sim/report.h"
#include "sim/sweep.h"
#include "sim/workload.h"
#include "timeline/chrome_trace.h"
#include "timeline/page.h"

namespace rondo::cli {
namespace {

// The file's name for its workload, and what is not as in the file.
std::string title_of(const SimulateArgs& args, const sim::Workload& workload) {
  std::string title = workload.name.empty() ? "rondo simulate" : workload.name;
  const char* before = ", with ";
  for (const std::string& setting : args.config.overrides) title += std::exchange(before, " ") + setting;
  return title;
}

// "run.json" for the first variant, then "run-1.json", …
std::filesystem::path trace_path(const std::filesystem::path& path, std::size_t variant) {
  if (variant == 0) return path;
  return path.parent_path() /
         fmt::format("{}-{}{}", path.stem().string(), variant, path.extension().string());
}

sim::CompareOptions options_of(const SimulateArgs& args) {
  return {.num_seeds = args.seeds, .num_threads = rl::resolve_threads(args.threads), .records_first = false};
}

Result<void> write_pictures(const SimulateArgs& args, const sim::Workload& workload,
                            std::vector<sim::VariantOutcomes>& outcomes) {
  std::vector<timeline::Timeline> timelines;
  for (sim::VariantOutcomes& variant : outcomes) {
    if (variant.timeline) timelines.push_back(*std::exchange(variant.timeline, std::nullopt));
  }
  if (!args.html.empty()) RONDO_TRY(timeline::write_page(args.html, title_of(args, workload), timelines));
  for (std::size_t v = 0; v < timelines.size() && !args.trace.empty(); ++v) {
    RONDO_TRY(timeline::write_chrome_trace(trace_path(args.trace, v), timelines[v]));
  }
  return {};
}

Result<void> run_sweep(const SimulateArgs& args, const sim::Workload& workload, Terminal& terminal) {
  if (!args.trace.empty()) {
    return fail(Code::kInvalidArgument, "--trace shows one rollout; leave --sweep out, or take --html");
  }
  if (args.per_seed) {
    return fail(Code::kInvalidArgument, "--per-seed is for one setting; leave --sweep out, or take --json");
  }
  RONDO_ASSIGN(const auto points, sim::sweep(workload, args.sweep, options_of(args)));
  if (args.json) {
    for (const sim::SweepPoint& point : points) {
      terminal.print(sim::outcomes_json(point.variants, point.setting));
    }
  } else {
    terminal.print(sim::sweep_table(points) + "\n" + sim::sweep_bars(points));
  }
  if (args.html.empty()) return {};
  return replace_file(args.html, sim::sweep_page(title_of(args, workload), points));
}

Result<void> run_comparison(const SimulateArgs& args, const sim::Workload& workload, Terminal& terminal) {
  sim::CompareOptions options = options_of(args);
  options.records_first = !args.html.empty() || !args.trace.empty();
  RONDO_ASSIGN(const auto variants, sim::variants_of(workload));
  RONDO_ASSIGN(auto outcomes, sim::compare(variants, options));
  // Before the pictures, which may fail to be written.
  if (args.json) {
    terminal.print(sim::outcomes_json(outcomes, ""));
  } else {
    if (!workload.name.empty()) terminal.print(title_of(args, workload) + "\n");
    if (args.per_seed) terminal.print(sim::seed_table(outcomes) + "\n");
    terminal.print(sim::comparison_table(workload.compare, outcomes));
  }
  return write_pictures(args, workload, outcomes);
}

Result<void> run(const SimulateArgs& args, Terminal& terminal) {
  RONDO_ASSIGN(const sim::Workload workload, sim::load_workload(args.config.file, args.config.overrides));
  if (args.per_seed && args.json)
    return fail(Code::kInvalidArgument, "--json prints each seed as it is; leave --per-seed out");
  if (args.show) {
    terminal.print(sim::annotated_toml(workload));
    return {};
  }
  for (const std::filesystem::path file : {args.html, args.trace}) {
    std::error_code ignored;  // writing the file then says what is wrong
    if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), ignored);
  }
  return args.sweep.empty() ? run_comparison(args, workload, terminal) : run_sweep(args, workload, terminal);
}

}  // namespace

int simulate(const SimulateArgs& args) {
  Terminal terminal;
  return exit_code(run(args, terminal), terminal);
}

}  // namespace rondo::cli
