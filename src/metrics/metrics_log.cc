#include "metrics/metrics_log.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/fault_point.h"
#include "metrics/json_row.h"
#include "metrics/jsonl_file.h"

namespace rondo::metrics {
namespace {

Result<void> append_text(FileWriter& file, std::string_view text) {
  return file.append(std::as_bytes(std::span(text)));
}

// In two writes, so that a test can kill the process between them.
Result<void> append_line(FileWriter& file, std::string_view line) {
  const std::size_t half = line.size() / 2;
  RONDO_TRY(append_text(file, line.substr(0, half)));
  fault::reach("log_half_written");
  return append_text(file, line.substr(half));
}

}  // namespace

Result<MetricsLog> MetricsLog::open(const std::filesystem::path& path, std::int64_t last_step) {
  RONDO_TRY(cut_to_step(path, last_step));
  RONDO_ASSIGN(FileWriter file, FileWriter::open_append(path));
  RONDO_TRY(fsync_folder(path.has_parent_path() ? path.parent_path() : std::filesystem::path(".")));
  return MetricsLog(std::move(file));
}

Result<void> MetricsLog::append(std::int64_t step, const StepRecord& record) {
  if (error_) return tl::unexpected<Status>(*error_);
  return keep_error(append_line(file_, json_row(step, record) + "\n"));
}

Result<void> MetricsLog::sync() {
  if (error_) return tl::unexpected<Status>(*error_);
  return keep_error(file_.sync());
}

Result<void> MetricsLog::keep_error(Result<void> result) {
  if (!result) error_ = result.error();
  return result;
}

}  // namespace rondo::metrics
