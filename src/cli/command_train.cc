#include "base/clock.h"
#include "base/fault_point.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "metrics/console.h"
#include "rl/sync_loop.h"

namespace rondo::cli {
namespace {

metrics::StepLine step_line() {
  using Unit = metrics::StepLine::Unit;
  return metrics::StepLine({{"critic/rewards/mean", "reward"},
                            {"actor/entropy", "entropy"},
                            {"actor/pg_loss", "pg_loss"},
                            {"actor/grad_norm", "grad_norm"},
                            {"response_length/mean", "len"},
                            {"frac_reward_zero_std", "flat"},
                            {"timing_s/gen", "gen", Unit::kSeconds},
                            {"timing_s/update_actor", "update", Unit::kSeconds}},
                           metrics::style_of(1));
}

rl::LoopObserver observer_on(Terminal& terminal) {
  rl::LoopObserver observer;
  observer.message = [&](std::string_view text) { terminal.print(text); };
  observer.progress = [&](std::string_view phase, std::int64_t done, std::int64_t total) {
    terminal.status(phase, done, total);
  };
  observer.step_done = [&, line = step_line()](std::int64_t step, std::int64_t total,
                                               const metrics::StepRecord& record, std::optional<double> eta) {
    terminal.print(line.format(step, total, record, eta) + "\n");
  };
  return observer;
}

std::string ending(const rl::LoopSummary& summary, const std::string& run_dir) {
  std::string text;
  if (summary.score_after) {
    const std::string before =
        summary.score_before ? metrics::format_number(*summary.score_before) + " before, " : "";
    text += fmt::format("held-out score: {}{} after {} steps\n", before,
                        metrics::format_number(*summary.score_after), summary.last_step);
  }
  if (summary.interrupted)
    text += summary.last_step > 0
                ? fmt::format("interrupted; step {} is saved: run the same command again to go on\n",
                              summary.last_step)
                : std::string("interrupted before the first step was complete; nothing to save\n");
  text += fmt::format("peak memory: {:.2f} GB\n", static_cast<double>(summary.peak_memory_bytes) / 1e9);
  text += fmt::format("run folder:  {}\n", run_dir);
  if (!summary.model_folder.empty()) text += fmt::format("model:       {}\n", summary.model_folder);
  return text;
}

Result<rl::LoopSummary> run(const TrainArgs& args, Terminal& terminal, const Clock& clock,
                            std::string& run_dir) {
  if (!args.fault.empty()) RONDO_TRY(fault::arm(args.fault));
  RONDO_ASSIGN(const rl::Config config, load_for_generation(args.config));
  run_dir = config.trainer.run_dir;
  RONDO_ASSIGN(const auto loop,
               rl::SyncLoop::create(config, clock, observer_on(terminal), catch_interrupts()));
  return loop->run();
}

}  // namespace

int train(const TrainArgs& args) {
  Terminal terminal;
  const SteadyClock clock;
  std::string run_dir;
  const auto summary = run(args, terminal, clock, run_dir);
  if (!summary) return report_error(summary.error());
  terminal.print(ending(*summary, run_dir));
  return summary->interrupted ? 130 : exit_code({}, terminal);
}

}  // namespace rondo::cli
