// The files that show what a rollout did and when.
#pragma once

#include <filesystem>
#include <string>

#include "base/status.h"
#include "timeline/timeline.h"

namespace rondo::rl {

/// Writes `name`.html, a page for any browser, and `name`.json, for ui.perfetto.dev, into the folder, which
/// is made if need be. Older files of the name are replaced.
Result<void> write_timeline(const std::filesystem::path& folder, const std::string& name,
                            const timeline::Timeline& timeline);

}  // namespace rondo::rl
