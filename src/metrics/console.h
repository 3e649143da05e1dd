// Text for the terminal: the line of a step, tables, and numbers and durations short enough to read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/step_record.h"

namespace rondo::metrics {

/// "0.42s", "4.2s", "42s", "3m12s", "2h05m", "3d04h"; "?" for what is no time.
std::string format_duration(double seconds);

/// Four significant digits: "0.4142", "3", "12346", "5e-06", "1.234e+08".
std::string format_number(double value);

/// Plain, or with the terminal's bold and dim.
enum class TextStyle { kPlain, kTerminal };

/// kTerminal if the file descriptor is one. Whether the user asked for plain text is the caller's to know.
TextStyle style_of(int file_descriptor);

/// Formats one line per step, "step:3/40 - reward:0.41 - gen:1.2s - eta:3m12s". A plain value.
class StepLine final {
 public:
  enum class Unit { kNumber, kSeconds };
  struct Column {
    std::string metric;  // name in the StepRecord
    std::string label;
    Unit unit = Unit::kNumber;
  };

  StepLine(std::vector<Column> columns, TextStyle style) : columns_(std::move(columns)), style_(style) {}

  /// Without a line end. Columns whose metric the record lacks are left out, as is an unknown ETA.
  std::string format(std::int64_t step, std::int64_t total_steps, const StepRecord& record,
                     std::optional<double> eta_seconds) const;

 private:
  std::vector<Column> columns_;
  TextStyle style_;
};

/// A table with aligned columns, the first to the left, the others to the right. A plain value.
class ConsoleTable final {
 public:
  explicit ConsoleTable(std::vector<std::string> header);

  /// A row has as many cells as the header.
  void add_row(std::vector<std::string> cells);
  /// The header, a rule and the rows, each line ended.
  std::string to_string() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace rondo::metrics
