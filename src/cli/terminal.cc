#include "cli/terminal.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace rondo::cli {
namespace {

constexpr std::int64_t kStatusIntervalNs = 100'000'000;
constexpr const char* kClearLine = "\r\033[K";

}  // namespace

Terminal::Terminal() : interactive_(::isatty(STDOUT_FILENO) == 1) {}

void Terminal::clear_status() {
  if (!status_shown_) return;
  std::fputs(kClearLine, stdout);
  status_shown_ = false;
}

void Terminal::print(std::string_view text) {
  clear_status();
  const bool whole =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!whole && errno != EPIPE && write_error_ == 0) write_error_ = errno;
}

Result<void> Terminal::written() const {
  if (write_error_ == 0) return {};
  return fail(Code::kIo, "cannot write the output: {}; some of it is lost",
              std::generic_category().message(write_error_));
}

void Terminal::status(std::string_view phase, std::int64_t done, std::int64_t total) {
  if (!interactive_) return;
  const std::int64_t now = clock_.now_ns();
  if (done < total && now - last_status_ns_ < kStatusIntervalNs) return;
  last_status_ns_ = now;
  clear_status();
  const std::string line = fmt::format("{} {}/{}", phase, done, total);
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
  status_shown_ = true;
}

int report_error(const Status& status) {
  fmt::print(stderr, "rondo: {}\n", status.to_string());
  switch (status.code()) {
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kUnsupported:
      return 2;
    case Code::kCancelled:
      return 130;
    default:
      return 1;
  }
}

int exit_code(const Result<void>& result, const Terminal& terminal) {
  if (!result) return report_error(result.error());
  const Result<void> written = terminal.written();
  return written ? 0 : report_error(written.error());
}

}  // namespace rondo::cli
