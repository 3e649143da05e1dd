// A timeline as a file for ui.perfetto.dev and chrome://tracing.
#pragma once

#include <filesystem>

#include "base/status.h"
#include "timeline/timeline.h"

namespace rondo::timeline {

/// Writes one process per instance with a row for each chunk that ran beside others, its quantities as
/// counters, and an arrow for each migration whose two chunks were kept. About 300 bytes per kept chunk.
Result<void> write_chrome_trace(const std::filesystem::path& path, const Timeline& timeline);

}  // namespace rondo::timeline
