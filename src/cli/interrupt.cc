#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <cstddef>

namespace rondo::cli {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

// Nothing can be done about a failed write in a signal handler.
template <std::size_t N>
void say(const char (&message)[N]) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, message, N - 1);
}

void on_signal(int signal) {
  if (interrupted.exchange(true)) _exit(128 + signal);
  say("\nstopping after the work at hand; once more to stop at once\n");
}

// Comes with every write from then on, so it must not end the process as a second Ctrl-C does.
void on_broken_pipe(int /*signal*/) {
  if (!interrupted.exchange(true)) say("nobody reads the output any more; stopping after the work at hand\n");
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

// `nohup` starts programs that are to live on without their terminal, with this signal ignored.
bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

const std::atomic<bool>& catch_interrupts() {
  handle(SIGINT, on_signal);
  handle(SIGTERM, on_signal);
  if (!is_ignored(SIGHUP)) handle(SIGHUP, on_signal);
  handle(SIGPIPE, on_broken_pipe);
  return interrupted;
}

Result<void> check_interrupts() {
  if (interrupted) return fail(Code::kCancelled, "interrupted");
  return {};
}

}  // namespace rondo::cli
