#include "metrics/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace rondo::metrics {
namespace {

// Columns on the terminal: UTF-8 characters, taken as one column each.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string styled(TextStyle style, std::string_view code, std::string_view text) {
  if (style == TextStyle::kPlain) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

}  // namespace

std::string format_duration(double seconds) {
  constexpr double kLongest = 1e9;
  if (!(seconds >= 0 && seconds < kLongest)) return "?";
  if (seconds < 0.995) return fmt::format("{:.2f}s", seconds);
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  const std::int64_t whole = std::llround(seconds);
  const std::int64_t minutes = whole / 60;
  const std::int64_t hours = minutes / 60;
  if (minutes == 0) return fmt::format("{}s", whole);
  if (hours == 0) return fmt::format("{}m{:02}s", minutes, whole % 60);
  if (hours < 24) return fmt::format("{}h{:02}m", hours, minutes % 60);
  return fmt::format("{}d{:02}h", hours / 24, hours % 24);
}

std::string format_number(double value) {
  const double size = std::abs(value);
  if (size >= 9999.5 && size < 1e7) return fmt::format("{:.0f}", value);
  return fmt::format("{:.4g}", value);
}

TextStyle style_of(int file_descriptor) {
  return ::isatty(file_descriptor) == 1 ? TextStyle::kTerminal : TextStyle::kPlain;
}

std::string StepLine::format(std::int64_t step, std::int64_t total_steps, const StepRecord& record,
                             std::optional<double> eta_seconds) const {
  std::string line = styled(style_, "1", fmt::format("step:{}/{}", step, total_steps));
  for (const Column& column : columns_) {
    const std::optional<double> value = record.find(column.metric);
    if (!value) continue;
    const bool seconds = column.unit == Unit::kSeconds;
    line += fmt::format(" - {}:{}", column.label, seconds ? format_duration(*value) : format_number(*value));
  }
  if (eta_seconds) line += styled(style_, "2", fmt::format(" - eta:{}", format_duration(*eta_seconds)));
  return line;
}

ConsoleTable::ConsoleTable(std::vector<std::string> header) {
  rows_.push_back(std::move(header));
}

void ConsoleTable::add_row(std::vector<std::string> cells) {
  RONDO_CHECK_EQ(cells.size(), rows_.front().size());
  rows_.push_back(std::move(cells));
}

std::string ConsoleTable::to_string() const {
  std::vector<std::size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  std::string out;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string padding(widths[i] - width(rows_[r][i]), ' ');
      line += i == 0 ? rows_[r][i] + padding : fmt::format("  {}{}", padding, rows_[r][i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
    if (r == 0) {
      std::size_t total = 2 * (widths.size() - 1);
      for (const std::size_t w : widths) total += w;
      out += std::string(total, '-') + "\n";
    }
  }
  return out;
}

}  // namespace rondo::metrics
