// Ctrl-C, SIGTERM, a terminal that was closed and a reader of stdout that went away, as a flag that the loops
// look at.
#pragma once

#include <atomic>

#include "base/status.h"

namespace rondo::cli {

/// Installs the handlers and returns the flag. The first signal sets it; a second Ctrl-C, SIGTERM or SIGHUP
/// ends the process at once.
const std::atomic<bool>& catch_interrupts();
/// kCancelled once a signal has come.
Result<void> check_interrupts();

}  // namespace rondo::cli
