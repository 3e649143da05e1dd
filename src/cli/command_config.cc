#include "cli/commands.h"
#include "cli/terminal.h"
#include "rl/config.h"

namespace rondo::cli {
namespace {

Result<void> run(const ShowConfigArgs& args, Terminal& terminal) {
  RONDO_ASSIGN(const rl::Config config, rl::read_config(args.config.file, args.config.overrides));
  if (args.markdown && (!args.config.file.empty() || !args.config.overrides.empty()))
    return fail(Code::kInvalidArgument, "--markdown prints the defaults; leave the file and key=value out");
  terminal.print(args.markdown ? rl::config_markdown() : rl::annotated_config_toml(config));
  return {};
}

}  // namespace

int show_config(const ShowConfigArgs& args) {
  Terminal terminal;
  return exit_code(run(args, terminal), terminal);
}

}  // namespace rondo::cli
