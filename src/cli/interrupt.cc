#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

namespace rondo::cli {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int signal) {
  if (interrupted.exchange(true)) _exit(128 + signal);
  constexpr char kMessage[] = "\nstopping after the work at hand; once more to stop at once\n";
  // Nothing can be done about a failed write in a signal handler.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
}

}  // namespace

const std::atomic<bool>& catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return interrupted;
}

}  // namespace rondo::cli
