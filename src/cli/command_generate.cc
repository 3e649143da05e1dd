#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "rl/generation.h"

namespace rondo::cli {
namespace {

// Prompts of the command line as rows: user messages, or raw text.
Result<rl::PromptSet> prompts_of(const GenerateArgs& args, const rl::Session& session) {
  const rl::Config& config = session.config;
  if (!args.file.empty())
    return rl::load_prompts({args.file}, config.data, config.model.path, *session.tokenizer,
                            data::GroundTruth::kOptional);
  std::vector<data::PromptRow> rows;
  for (const std::string& prompt : args.prompts) {
    data::PromptRow row;
    row.index = static_cast<std::int64_t>(rows.size());
    if (args.raw) {
      row.text = prompt;
    } else {
      row.messages = {{"user", prompt}};
    }
    rows.push_back(std::move(row));
  }
  return rl::tokenize_prompts(std::move(rows), config.data, config.model.path, *session.tokenizer);
}

std::string as_json(const rl::ScoredGroup& group, std::size_t sample) {
  const rl::ScoredResponse& scored = group.samples[sample];
  std::vector<double> logprobs(scored.response.logprobs.begin(), scored.response.logprobs.end());
  return nlohmann::json{{"prompt_index", group.prompt->row.index},
                        {"sample", sample},
                        {"prompt", group.prompt->text},
                        {"prompt_tokens", *group.prompt->tokens},
                        {"response", scored.text},
                        {"response_tokens", scored.response.tokens},
                        {"log_probs", logprobs},
                        {"finish_reason", batch::finish_reason_name(scored.response.reason)}}
             .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

// Says which of several responses follows.
std::string heading(const rl::ScoredGroup& group, std::size_t sample) {
  return fmt::format("--- prompt {}, response {}\n", group.prompt->row.index + 1, sample + 1);
}

Result<void> run(const GenerateArgs& args, Terminal& terminal) {
  RONDO_ASSIGN(const rl::Config config, load_for_generation(args.config));
  RONDO_TRY(config.validate_policy());
  if (args.prompts.empty() == args.file.empty())
    return fail(Code::kInvalidArgument,
                "give prompts with --prompt TEXT, or a jsonl file with --file, one of the two");
  if (args.raw && !args.file.empty())
    return fail(Code::kInvalidArgument,
                "--raw is about --prompt; in a file, a prompt that is a string is raw text already");
  RONDO_ASSIGN(const auto session, rl::Session::open(config, &catch_interrupts()));
  RONDO_ASSIGN(const rl::PromptSet prompts, prompts_of(args, *session));
  std::vector<const rl::Prompt*> all;
  for (const rl::Prompt& prompt : prompts.prompts) all.push_back(&prompt);
  rl::GenerationStats stats;
  RONDO_ASSIGN(const auto groups,
               rl::generate(*session, {.prompts = all, .sampling = &config.rollout.sampling}, {},
                            catch_interrupts(), stats, [&](std::int64_t done, std::int64_t total) {
                              if (!args.json) terminal.status("generate", done, total);
                            }));
  const bool several = groups.size() > 1 || config.rollout.sampling.n > 1;
  for (const rl::ScoredGroup& group : groups)
    for (std::size_t i = 0; i < group.samples.size(); ++i) {
      if (several && !args.json) terminal.print(heading(group, i));
      terminal.print(args.json ? as_json(group, i) : group.samples[i].text + "\n");
    }
  return {};
}

}  // namespace

int generate(const GenerateArgs& args) {
  Terminal terminal;
  return exit_code(run(args, terminal), terminal);
}

}  // namespace rondo::cli
