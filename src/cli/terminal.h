// What a command shows while it works: messages, a line per step, a status line that is overwritten.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace rondo::cli {

/// Writes to stdout; the status line only where stdout is a terminal. One owner thread.
class Terminal final {
 public:
  Terminal();
  ~Terminal() { clear_status(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// Prints text as it is, behind the cleared status line.
  void print(std::string_view text);
  /// Shows "phase 12/64" on the status line, at most ten times a second.
  void status(std::string_view phase, std::int64_t done, std::int64_t total);
  bool interactive() const { return interactive_; }
  /// Whether all that was printed has left the program; an error where some is lost, as on a full disk. A
  /// reader that went away is none: the signal handler tells.
  Result<void> written() const;

 private:
  void clear_status();
  SteadyClock clock_;
  bool interactive_;
  bool status_shown_ = false;
  std::int64_t last_status_ns_ = 0;
  int write_error_ = 0;  // errno of the first text that was lost
};

/// Prints "rondo: …" to stderr and returns the exit code for it: 2 for bad input, 130 if cancelled, else 1.
int report_error(const Status& status);
/// The exit code of a command that ended with `result`, its output included; prints the error if there is
/// one.
int exit_code(const Result<void>& result, const Terminal& terminal);

}  // namespace rondo::cli
