#include "rl/timeline_files.h"

#include <span>
#include <system_error>

#include "timeline/chrome_trace.h"
#include "timeline/page.h"

namespace rondo::rl {

Result<void> write_timeline(const std::filesystem::path& folder, const std::string& name,
                            const timeline::Timeline& timeline) {
  std::error_code ignored;  // no file can be made then, which says why
  std::filesystem::create_directories(folder, ignored);
  RONDO_TRY(timeline::write_chrome_trace(folder / (name + ".json"), timeline));
  return timeline::write_page(folder / (name + ".html"), "rollout: " + timeline.name,
                              std::span(&timeline, 1));
}

}  // namespace rondo::rl
