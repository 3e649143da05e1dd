#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "metrics/console.h"
#include "rl/evaluation.h"

namespace rondo::cli {
namespace {

std::string as_json(const rl::EvaluationReport& report) {
  nlohmann::json sources = nlohmann::json::object();
  for (const auto& [name, source] : report.sources)
    sources[name] = {{"responses", source.responses},
                     {"mean_score", source.score_sum / static_cast<double>(source.responses)}};
  return nlohmann::json{{"mean_score", report.mean_score()},
                        {"responses", report.responses},
                        {"truncated", report.truncated},
                        {"mean_length", report.mean_length},
                        {"sources", sources}}
             .dump() +
         "\n";
}

std::string as_table(const rl::EvaluationReport& report) {
  metrics::ConsoleTable table({"data source", "responses", "mean score"});
  for (const auto& [name, source] : report.sources)
    table.add_row({name.empty() ? "(none)" : name, std::to_string(source.responses),
                   metrics::format_number(source.score_sum / static_cast<double>(source.responses))});
  table.add_row({"all", std::to_string(report.responses), metrics::format_number(report.mean_score())});
  return table.to_string() + fmt::format("mean response length {} tokens; {} of {} cut at the limit\n",
                                         metrics::format_number(report.mean_length), report.truncated,
                                         report.responses);
}

Result<rl::EvaluationReport> run(const EvalArgs& args, Terminal& terminal) {
  RONDO_ASSIGN(const rl::Config config, load_for_generation(args.config));
  RONDO_TRY(config.validate_policy());
  if (config.data.val_files.empty())
    return fail(Code::kInvalidArgument,
                "data.val_files is empty; name at least one jsonl file to evaluate on");
  RONDO_ASSIGN(const auto session, rl::Session::open(config, &catch_interrupts()));
  RONDO_ASSIGN_CTX(const rl::PromptSet prompts,
                   rl::load_prompts(config.data.val_files, config.data, config.model.path,
                                    *session->tokenizer, data::GroundTruth::kRequired),
                   "data.val_files");
  RONDO_TRY(rl::check_ground_truths(config.reward, prompts));
  RONDO_ASSIGN(const reward::RewardFunction reward, reward::make_reward(config.reward));
  return rl::evaluate(*session, prompts, reward, 0, catch_interrupts(),
                      [&](std::int64_t done, std::int64_t total) {
                        if (!args.json) terminal.status("evaluation", done, total);
                      });
}

}  // namespace

int eval(const EvalArgs& args) {
  Terminal terminal;
  const auto report = run(args, terminal);
  if (!report) return report_error(report.error());
  terminal.print(args.json ? as_json(*report) : as_table(*report));
  return exit_code({}, terminal);
}

}  // namespace rondo::cli
