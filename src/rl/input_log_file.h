// InputLogFile: the inputs of the rollout's deciding cores, streamed to a file (rollout/input_log.h has the
// format).
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/status.h"
#include "rollout/input_log.h"

namespace rondo::rl {

/// Appends one line per input through a small buffer. Recording never fails a run: after the first error (a
/// full disk) a warning is logged and the file grows no more. A killed process leaves whole lines and perhaps
/// one cut short, which parse_input_log() reads. One owner thread.
class InputLogFile final {
 public:
  /// Creates or empties the file, and its folder where it does not exist. kResourceExhausted, and the file as
  /// it was, if another process records to it.
  static Result<std::unique_ptr<InputLogFile>> create(const std::filesystem::path& path);
  ~InputLogFile() { flush(); }
  InputLogFile(const InputLogFile&) = delete;
  InputLogFile& operator=(const InputLogFile&) = delete;

  void add(const rollout::TimedInput& input);
  /// What was added is in the file now.
  void flush();

 private:
  InputLogFile(FileLock lock, FileWriter file) : lock_(std::move(lock)), file_(std::move(file)) {}

  FileLock lock_;
  FileWriter file_;
  std::string buffer_;
  bool failed_ = false;
};

}  // namespace rondo::rl
