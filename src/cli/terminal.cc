#include "cli/terminal.h"

#include <unistd.h>

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
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
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

}  // namespace rondo::cli
