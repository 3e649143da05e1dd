// TraceWriter: a timeline for chrome://tracing and ui.perfetto.dev, in the JSON array form of the trace event
// format: lanes (M), complete events (X), flow arrows (s, f), counters (C).
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace rondo::metrics {

/// Streams events to a file through a small buffer. Does not read a clock: times are Clock::now_ns(). Any
/// thread. A file without its end, from a killed process, still opens in the viewers.
///
/// The first write error is kept and returned by finish(); later events are dropped.
class TraceWriter final {
 public:
  /// A row of the timeline: a process groups rows.
  struct Lane {
    int process = 0;
    int thread = 0;
  };
  /// A value shown with an event; the text is only borrowed for the call.
  struct Argument {
    std::string_view name;
    std::variant<std::int64_t, double, std::string_view> value;
  };

  /// Creates or truncates the file. Times are shown relative to `origin_ns`.
  static Result<std::unique_ptr<TraceWriter>> create(const std::filesystem::path& path,
                                                     std::int64_t origin_ns);
  /// Finishes; an error is lost, so call finish() where it matters.
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  /// A new row `name` in the group `process`, which is made at its first lane.
  Lane add_lane(std::string_view process, std::string_view name);
  /// A box from begin to end; boxes of a lane nest or are apart.
  void complete(Lane lane, std::string_view name, std::int64_t begin_ns, std::int64_t end_ns,
                std::initializer_list<Argument> arguments = {});
  /// An arrow between the boxes that hold these times.
  void flow(std::string_view name, Lane from, std::int64_t from_ns, Lane to, std::int64_t to_ns);
  /// The value of a quantity from this time on; the curve belongs to the lane's group.
  void counter(Lane lane, std::string_view name, std::int64_t time_ns, double value);

  /// Ends the document and closes the file, durably. Once; no events afterwards.
  Result<void> finish();

 private:
  struct Process {
    std::string name;
    int lanes = 0;
  };

  TraceWriter(FileWriter file, std::int64_t origin_ns) : file_(std::move(file)), origin_ns_(origin_ns) {}
  // The methods below need the lock.
  void write_event(const std::string& event);
  void write_name(const char* kind, Lane lane, std::string_view name);
  void flush();
  int process_index(std::string_view name);
  std::string at(Lane lane, std::int64_t time_ns) const;

  std::mutex mutex_;
  FileWriter file_;
  std::int64_t origin_ns_;
  std::string buffer_ = "[";
  std::vector<Process> processes_;
  std::int64_t num_flows_ = 0;
  bool has_events_ = false;
  bool finished_ = false;
  std::optional<Status> error_;
};

}  // namespace rondo::metrics
