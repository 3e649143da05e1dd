// MetricsLog: the run's metrics.jsonl, one line per step (json_row.h has the grammar).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/file.h"
#include "base/status.h"
#include "metrics/step_record.h"

namespace rondo::metrics {

/// Appends one line per step, without a buffer: when append() has returned, a killed process loses nothing,
/// and one killed inside it leaves a cut last line, which the next open() removes. One owner thread.
///
/// After an error (a full disk) the log is poisoned: the file may end in a cut line, and every later call
/// returns the same error.
class MetricsLog final {
 public:
  /// Cuts what the file holds to rows with step <= `last_step` (see cut_to_step), then appends; creates it
  /// where it does not exist. A fresh run passes -1.
  static Result<MetricsLog> open(const std::filesystem::path& path, std::int64_t last_step);

  Result<void> append(std::int64_t step, const StepRecord& record);
  /// Makes the lines survive a crash of the machine; before a checkpoint is published.
  Result<void> sync();

 private:
  explicit MetricsLog(FileWriter file) : file_(std::move(file)) {}
  Result<void> keep_error(Result<void> result);

  FileWriter file_;
  std::optional<Status> error_;
};

}  // namespace rondo::metrics
