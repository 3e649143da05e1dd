// What the page draws, as JSON. For this module alone.
//
//   data     = { "title": text, "timelines": [ timeline, … ] }
//   timeline = { "name": text, "seconds", "tail_begin": seconds, "instances", "requests", "tokens", "chunks",
//                "migrations", "groups_drawn", "groups": counts,
//                "lanes": [ { "instance": id, "rows": count }, … ],
//                "boxes": { "lane", "row", "begin", "end", "request", "group", "from", "to", "flags": lists
//                }, "finishes": [ seconds, … ], "curves": [ curve, … ] }
//   curve    = { "name": text, "bin": seconds, "lines": [ [mean, …], … ], "labels": [ text, … ] }
//
// Times are seconds since the timeline's begin; a box's are microseconds, its end relative to its begin.
// "finishes" are quantiles: item i of n is when the share (i + 1) / n had finished. flags: 1 migrated, 2
// finished, 4 KV moved, 8 KV recomputed, 16 of a request of the tail. A curve of many instances has the lines
// "mean", "least" and "most".
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "timeline/page.h"
#include "timeline/timeline.h"

namespace rondo::timeline {

/// Without "<", so that it may stand inside of a script element.
std::string page_data(std::string_view title, std::span<const Timeline> timelines, const PageLimits& limits);

}  // namespace rondo::timeline
