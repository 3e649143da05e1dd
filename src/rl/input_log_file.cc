#include "rl/input_log_file.h"

#include <cstddef>
#include <span>
#include <system_error>

#include "base/log.h"

namespace rondo::rl {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;

}  // namespace

Result<std::unique_ptr<InputLogFile>> InputLogFile::create(const std::filesystem::path& path) {
  std::error_code ignored;  // the file cannot be made either then, which says why
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);
  RONDO_ASSIGN_CTX(FileLock lock, FileLock::take(path), "rollout.input_log");
  RONDO_ASSIGN_CTX(FileWriter file, FileWriter::create(path), "rollout.input_log");
  return std::unique_ptr<InputLogFile>(new InputLogFile(std::move(lock), std::move(file)));
}

void InputLogFile::add(const rollout::TimedInput& input) {
  if (failed_) return;
  buffer_ += rollout::input_line(input);
  if (buffer_.size() >= kBufferBytes) flush();
}

void InputLogFile::flush() {
  if (failed_ || buffer_.empty()) return;
  if (const Result<void> written = file_.append(std::as_bytes(std::span(buffer_))); !written) {
    log::warn("rollout.input_log: {}; the recording ends here", written.error().message());
    failed_ = true;
  }
  buffer_.clear();
}

}  // namespace rondo::rl
