#include <cstdio>

#include "cli/commands.h"
#include "cli/terminal.h"
#include "rl/config.h"

namespace rondo::cli {

int show_config(const ShowConfigArgs& args) {
  if (args.markdown) {
    fmt::print("{}", rl::config_markdown());
    return 0;
  }
  const auto config = rl::read_config(args.config.file, args.config.overrides);
  if (!config) return report_error(config.error());
  fmt::print("{}", rl::annotated_config_toml(*config));
  return 0;
}

}  // namespace rondo::cli
