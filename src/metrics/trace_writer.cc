#include "metrics/trace_writer.h"

#include <cstddef>
#include <span>
#include <utility>

#include "base/check.h"
#include "metrics/json_row.h"

namespace rondo::metrics {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;

// The format counts in microseconds; three decimals keep the nanoseconds.
std::string microseconds(std::int64_t ns) {
  const char* sign = ns < 0 ? "-" : "";
  const std::uint64_t size = ns < 0 ? 0 - static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  return fmt::format("{}{}.{:03}", sign, size / 1000, size % 1000);
}

std::string argument_text(const TraceWriter::Argument& argument) {
  const std::string name = json_string(argument.name);
  if (const auto* integer = std::get_if<std::int64_t>(&argument.value))
    return fmt::format("{}:{}", name, *integer);
  if (const auto* real = std::get_if<double>(&argument.value))
    return fmt::format("{}:{}", name, json_number(*real));
  return fmt::format("{}:{}", name, json_string(std::get<std::string_view>(argument.value)));
}

}  // namespace

Result<std::unique_ptr<TraceWriter>> TraceWriter::create(const std::filesystem::path& path,
                                                         std::int64_t origin_ns) {
  RONDO_ASSIGN(FileWriter file, FileWriter::create(path));
  return std::unique_ptr<TraceWriter>(new TraceWriter(std::move(file), origin_ns));
}

TraceWriter::~TraceWriter() {
  if (!finished_) static_cast<void>(finish());
}

TraceWriter::Lane TraceWriter::add_lane(std::string_view process, std::string_view name) {
  const std::lock_guard lock(mutex_);
  const int index = process_index(process);
  const Lane lane{index, ++processes_[static_cast<std::size_t>(index)].lanes};
  if (lane.thread == 1) write_name("process_name", lane, process);
  write_name("thread_name", lane, name);
  return lane;
}

void TraceWriter::complete(Lane lane, std::string_view name, std::int64_t begin_ns, std::int64_t end_ns,
                           std::initializer_list<Argument> arguments) {
  std::string values;
  for (const Argument& argument : arguments)
    values += fmt::format("{}{}", values.empty() ? "" : ",", argument_text(argument));
  const std::lock_guard lock(mutex_);
  write_event(fmt::format("{{\"ph\":\"X\",\"name\":{},{},\"dur\":{},\"args\":{{{}}}}}", json_string(name),
                          at(lane, begin_ns), microseconds(end_ns - begin_ns), values));
}

void TraceWriter::flow(std::string_view name, Lane from, std::int64_t from_ns, Lane to, std::int64_t to_ns) {
  const std::string label = json_string(name);
  const std::lock_guard lock(mutex_);
  const std::int64_t id = ++num_flows_;
  write_event(fmt::format("{{\"ph\":\"s\",\"cat\":\"flow\",\"id\":{},\"name\":{},{}}}", id, label,
                          at(from, from_ns)));
  write_event(fmt::format("{{\"ph\":\"f\",\"bp\":\"e\",\"cat\":\"flow\",\"id\":{},\"name\":{},{}}}", id,
                          label, at(to, to_ns)));
}

void TraceWriter::counter(Lane lane, std::string_view name, std::int64_t time_ns, double value) {
  const std::string number = json_number(value);
  const std::lock_guard lock(mutex_);
  write_event(fmt::format("{{\"ph\":\"C\",\"name\":{},{},\"args\":{{\"value\":{}}}}}", json_string(name),
                          at(lane, time_ns), number));
}

Result<void> TraceWriter::finish() {
  const std::lock_guard lock(mutex_);
  RONDO_CHECK(!finished_);
  finished_ = true;
  buffer_ += "\n]\n";
  flush();
  if (error_) return tl::unexpected<Status>(*error_);
  return file_.finish();
}

void TraceWriter::write_event(const std::string& event) {
  RONDO_CHECK(!finished_);
  buffer_ += has_events_ ? ",\n" : "\n";
  buffer_ += event;
  has_events_ = true;
  if (buffer_.size() >= kBufferBytes) flush();
}

void TraceWriter::write_name(const char* kind, Lane lane, std::string_view name) {
  write_event(fmt::format("{{\"ph\":\"M\",\"name\":\"{}\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}}",
                          kind, lane.process, lane.thread, json_string(name)));
}

void TraceWriter::flush() {
  if (!error_) {
    if (auto written = file_.append(std::as_bytes(std::span(buffer_))); !written) error_ = written.error();
  }
  buffer_.clear();
}

int TraceWriter::process_index(std::string_view name) {
  for (std::size_t i = 0; i < processes_.size(); ++i)
    if (processes_[i].name == name) return static_cast<int>(i);
  processes_.push_back({std::string(name)});
  return static_cast<int>(processes_.size()) - 1;
}

std::string TraceWriter::at(Lane lane, std::int64_t time_ns) const {
  return fmt::format("\"pid\":{},\"tid\":{},\"ts\":{}", lane.process, lane.thread,
                     microseconds(time_ns - origin_ns_));
}

}  // namespace rondo::metrics
