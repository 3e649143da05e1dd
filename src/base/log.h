// The log facade. One process-wide sink (stderr); the only singleton of the code base.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace rondo::log {

enum class Level { kDebug, kInfo, kWarning, kError };

/// Messages below `level` are dropped. Any thread.
void set_level(Level level);
/// Writes one line. Any thread.
void write(Level level, std::string_view message);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace rondo::log
