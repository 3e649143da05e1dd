#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "metrics/console.h"
#include "rl/session.h"
#include "rl/step_profile.h"

namespace rondo::cli {
namespace {

std::string cache_folder() {
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  if (xdg != nullptr && *xdg != '\0') return std::string(xdg) + "/rondo";
  const char* home = std::getenv("HOME");
  return home == nullptr ? std::string() : std::string(home) + "/.cache/rondo";
}

std::string as_table(const rollout::StepCost& cost) {
  std::vector<std::string> header = {"batch", "context"};
  for (const double gamma : cost.axes().gammas) header.push_back(fmt::format("{} drafts", gamma));
  metrics::ConsoleTable table(header);
  for (const double batch : cost.axes().batches) {
    for (const double context : cost.axes().contexts) {
      std::vector<std::string> row = {fmt::format("{}", batch), fmt::format("{}", context)};
      for (const double gamma : cost.axes().gammas)
        row.push_back(fmt::format("{:.2f} ms", 1e3 * cost.seconds(batch, gamma, context)));
      table.add_row(std::move(row));
    }
  }
  return table.to_string();
}

Result<void> run(const ConfigArgs& args, Terminal& terminal) {
  RONDO_ASSIGN(rl::Config config, load_for_generation(args));
  config.rollout.spec.enabled = false;  // the session would measure by itself
  RONDO_ASSIGN(const auto session, rl::Session::open(config));
  const int threads = std::max(1, session->pool->num_threads() / config.rollout.instances);
  ThreadPool team(threads);
  const kernels::Context context{session->context.table, &team};
  RONDO_ASSIGN(const auto engine, engine::Engine::create(config.engine, *session->model, nullptr, context));
  const rl::StepProfileKey key{config, *session->model, context.table->name, threads};
  RONDO_ASSIGN(const rollout::StepCost cost, rl::renew_step_cost(key, *engine, &catch_interrupts()));
  const auto file = rl::step_profile_file(key, engine->num_blocks());
  std::error_code ignored;
  terminal.print(as_table(cost));
  if (std::filesystem::exists(file, ignored)) terminal.print(fmt::format("kept in {}\n", file.string()));
  return {};
}

}  // namespace

Result<rl::Config> load_for_generation(const ConfigArgs& args) {
  RONDO_ASSIGN(rl::Config config, rl::load_config(args.file, args.overrides));
  if (config.rollout.spec.profile_folder.empty()) config.rollout.spec.profile_folder = cache_folder();
  return config;
}

int profile(const ConfigArgs& args) {
  Terminal terminal;
  return exit_code(run(args, terminal), terminal);
}

}  // namespace rondo::cli
