// Timelines as one HTML page that needs nothing but a browser.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "timeline/timeline.h"

namespace rondo::timeline {

/// How much of a timeline a page draws; it says what it leaves out.
struct PageLimits {
  std::int64_t max_chunks = 20'000;  // boxes per timeline, of whole groups
  std::int32_t max_lanes = 48;       // instances drawn with their chunks, spread evenly
  std::int32_t max_lines = 12;       // instances above which a quantity is drawn as mean and range
  std::size_t max_points = 400;      // of a curve
};

/// `text` as it may stand in HTML, between tags or in a quoted attribute.
std::string html_text(std::string_view text);

/// The page: for each timeline the chunks of its instances, coloured by group, with the tail set apart; its
/// quantities over time; and the share of responses finished over time, all on one axis, for comparison.
/// Bounded by `limits`, however long the rollout: about 0.5 MB per timeline at most.
std::string page(std::string_view title, std::span<const Timeline> timelines, const PageLimits& limits = {});

/// Writes it, whole or not at all.
Result<void> write_page(const std::filesystem::path& path, std::string_view title,
                        std::span<const Timeline> timelines);

}  // namespace rondo::timeline
